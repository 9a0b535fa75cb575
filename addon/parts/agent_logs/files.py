"""Edge. Finds agents' logs and reads them, within bounds: lines, documents, databases."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from addon.dialects.counts import lookup, objects_at
from addon.framing import json_values
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.reader import LoggedAgent
from ledger.model.errors import LedgerError
from ledger.text.figures import counted

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A line with a pasted picture has megabytes; a longer one is skipped, and counted."""
READ_BYTES = 1024 * 1024
"""Of one read of a file: each read gives the interpreter to the writer."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""A whole session as one JSON document."""
SIGNED_WITHIN = 5
"""Lines of a log without a known name by which its agent is recognised."""
PROJECTS_MAX = 1_000
"""Of Crush, which keeps a database in each."""
BUSY_SECONDS = 5.0
SUFFIXES = {".json", ".jsonl", ".db"}

type Log = tuple[LoggedAgent, Path]


@dataclass(slots=True)
class SkippedCounts:
    """What could not be read."""

    lines: Counter[Path] = field(default_factory=Counter)
    """Lines that are not a JSON object, or too long, by log."""
    files: list[Path] = field(default_factory=list)
    """Logs that could not be opened."""


def user_home() -> Path:
    """The user's home folder."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises if there is none


def folders(agent: LoggedAgent, environment: Mapping[str, str], home: Path) -> list[Path]:
    """The folders of an agent's files."""
    variable, below = agent.variable
    named = environment.get(variable)
    return [Path(named, below)] if named else [home / folder for folder in agent.homes]


def find(agent: LoggedAgent, environment: Mapping[str, str], home: Path) -> list[Path]:
    """The logs of an agent, in a fixed order; links are not followed out of its folder."""
    places = folders(agent, environment, home)
    if agent.name == "crush":
        places += [
            Path(str(project.get("path")), str(project.get("data_dir") or ".crush"))
            for place in places
            for line in read(agent, place / "projects.json", SkippedCounts())
            for project in islice(objects_at(line, "projects"), PROJECTS_MAX)
        ]
    paths = {path for place in places for each in agent.patterns for path in place.glob(each)}
    # A transcript before those of its subagents, which lie deeper and may repeat parts of it.
    return sorted(
        (path for path in paths if path.is_file() and not path.is_symlink()),
        key=lambda path: (len(path.parts), path),
    )


def to_import() -> str:
    """How many logs of each agent are where it keeps them, and the command for them: `97 logs of
    Claude Code, 3 logs of Codex: tokentee import`; empty if there are none."""
    home = user_home()
    counts = {each.title: len(find(each, os.environ, home)) for each in AGENTS.values()}
    found = [f"{counted(count, 'log')} of {title}" for title, count in counts.items() if count]
    return f"{', '.join(found)}: tokentee import" if found else ""


def agent_of(path: Path) -> LoggedAgent | None:
    """Which agent's log a file is, by its path or its first lines."""
    name = path.absolute().as_posix()
    for agent in AGENTS.values():
        places = [f"*/{home}/" for home in agent.homes] if path.suffix != ".db" else ["*/"]
        patterns = [each.replace("**/", "*") for each in agent.patterns]
        if any(fnmatchcase(name, place + each) for place in places for each in patterns):
            return agent
    if path.suffix == ".db":
        return None
    any_agent = replace(AGENTS["claude-code"], marks=())
    first = list(islice(read(any_agent, path, SkippedCounts()), SIGNED_WITHIN))
    return next(
        (
            agent
            for agent in sorted(AGENTS.values(), key=lambda each: each.name == "claude-code")
            for sign in agent.signs
            if any(lookup({"line": line}, sign) is not None for line in first)
        ),
        None,
    )


def named(paths: Iterable[Path]) -> Iterator[Log]:
    """The logs among these files and folders. LedgerError for a missing path, and for a file that
    is not a session log."""
    for path in paths:
        if path.is_dir():
            for found in sorted(path.rglob("*"), key=lambda path: (len(path.parts), path)):
                is_file = found.suffix in SUFFIXES and found.is_file() and not found.is_symlink()
                agent = agent_of(found) if is_file else None
                if agent is not None:
                    yield agent, found
        elif path.is_file():
            agent = agent_of(path)
            if agent is None:
                raise LedgerError(f"{path}: not a session log of {', '.join(AGENTS)}")
            yield agent, path
        else:
            raise LedgerError(f"{path}: no such file or folder")


def read(
    agent: LoggedAgent, path: Path, skipped: SkippedCounts, start: int = 0
) -> Iterator[dict[str, Any]]:
    """The JSON objects of a log, in order. A partial last line, as in a running session, is left
    out. `start`: the bytes before it are passed over, of a log of lines."""
    try:
        if path.suffix == ".db":
            yield from _rows(agent, path, skipped)
            return
        with path.open("rb", READ_BYTES) as file:
            if path.suffix == ".json":
                document = json_values.loads(file.read(DOCUMENT_BYTES_MAX))
                if document is None:
                    skipped.files.append(path)
                else:
                    yield document
                return
            file.seek(start)
            marks = [mark.encode() for mark in agent.marks]
            while line := file.readline(LINE_BYTES_MAX):
                if not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX:
                    skipped.lines[path] += 1
                    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
                        pass
                    continue
                # A prompt or a result of a tool is half of a log. A whole object, at least by its
                # ends, without the mark has no answer: a fifth of the reading (measured).
                is_object = line.startswith(b"{") and line.endswith(b"}\n")
                is_skipped = is_object and not any(mark in line for mark in marks)
                if marks and is_skipped and not json_values.has_escaped_key(line):
                    continue
                value = json_values.loads(line) if line.strip() else None
                if value is not None:
                    yield value
                elif line.strip():
                    skipped.lines[path] += 1
    except OSError:
        skipped.files.append(path)


def _rows(agent: LoggedAgent, path: Path, skipped: SkippedCounts) -> Iterator[dict[str, Any]]:
    """The rows of a database, which the agent may be writing, by all statements that it answers."""
    answers = []
    url = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")  # its views call nothing
            for statement in agent.statements:
                with suppress(sqlite3.OperationalError):  # a table of another version
                    answers.append(database.execute(statement))
            for answer in answers:
                names = [column for column, *_ in answer.description]
                for values in answer:
                    row = dict(zip(names, values, strict=True))
                    data = row.get("data")
                    if isinstance(data, str):
                        row["data"] = json_values.loads(data.encode("utf-8", "replace"))
                        skipped.lines[path] += row["data"] is None
                    yield row
    except sqlite3.Error:  # damaged, or locked: the rest is not read
        answers = []
    if not answers:
        skipped.files.append(path)
