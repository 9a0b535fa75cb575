"""Edge. Finds agents' logs and reads them, within bounds: lines, documents, databases."""

import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
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
SKIPPED_BYTES_MAX = 1024 * 1024 * 1024
"""Of one line: a file with holes may have any number of bytes and takes no room on the disk."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""A whole session as one JSON document."""
SIGNED_WITHIN = 5
"""Lines of a log without a known name by which its agent is recognised."""
PROJECTS_MAX = 1_000
"""Of Crush, which keeps a database in each."""
BUSY_SECONDS = 5.0
STEPS_PER_BYTE = 4
"""Steps of SQLite for one statement, by the size of the database. A row takes some 10 and has more
bytes than that; a view, or pages that name each other in a circle, may have rows without end."""
STEPS_FREE = 1_000_000
STEPS_COUNTED = 1_000
"""At a time."""
SECONDS_PER_BYTE = 1e-7
"""For the rows of one statement, by the size of the database: a view, or a generated column, may
have much more text than the file."""
SECONDS_FREE = 10.0
SUPERLINEAR = {
    **dict.fromkeys(("instr", "glob", "trim", "ltrim", "rtrim", "like"), 2),
    **dict.fromkeys(("replace",), 3),
    **dict.fromkeys(("hex", "zeroblob", "randomblob"), 1),
    **dict.fromkeys(("printf", "format", "group_concat"), -1),
}
"""Functions of SQLite, and their arguments, that make or search any length in one step, which
nothing can interrupt. No statement of ours calls one, so a view or a column that does has no rows.
"""
BESIDE = ("-wal", "-journal", "-shm")
"""What SQLite opens with a database."""
_TABLE = re.compile(r"FROM (\w+)")
DATABASES = {".db", ".sqlite"}
SUFFIXES = {".json", ".jsonl", *DATABASES}

type Log = tuple[LoggedAgent, Path]


@dataclass(slots=True)
class SkippedCounts:
    """What could not be read."""

    lines: Counter[Path] = field(default_factory=Counter)
    """Lines that are not a JSON object, or too long, by log."""
    files: dict[Path, str] = field(default_factory=dict)
    """Logs that could not be read, and why, where that is known."""


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
        (path for path in paths if not (path.is_dir() or path.is_symlink())),
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
        places = [f"*/{home}/" for home in agent.homes] if path.suffix not in DATABASES else ["*/"]
        patterns = [each.replace("**/", "*") for each in agent.patterns]
        if any(fnmatchcase(name, place + each) for place in places for each in patterns):
            return agent
    if path.suffix in DATABASES:
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
                is_log = found.suffix in SUFFIXES and not (found.is_dir() or found.is_symlink())
                agent = agent_of(found) if is_log else None
                if agent is not None:
                    yield agent, found
        elif path.is_file():
            agent = agent_of(path)
            if agent is None:
                raise LedgerError(f"{path}: not a session log of {', '.join(AGENTS)}")
            yield agent, path
        elif path.exists():
            raise LedgerError(f"{path}: a pipe or a device is not read; name a file or a folder")
        else:
            raise LedgerError(f"{path}: no such file or folder")


def read(
    agent: LoggedAgent, path: Path, skipped: SkippedCounts, start: int = 0
) -> Iterator[dict[str, Any]]:
    """The JSON objects of a log, in order. A partial last line, as in a running session, is left
    out. `start`: the bytes before it are passed over, of a log of lines."""
    beside = [path.with_name(path.name + each) for each in BESIDE if path.suffix == ".db"]
    if any(each.exists() and not each.is_file() for each in (path, *beside)):
        skipped.files[path] = "a pipe or a device"  # it may have no end
        return
    try:
        if path.suffix in DATABASES:
            yield from _rows(agent, path, skipped)
            return
        with path.open("rb", READ_BYTES) as file:
            if path.suffix == ".json":
                document = json_values.loads(file.read(DOCUMENT_BYTES_MAX))
                if document is None:
                    skipped.files[path] = ""
                else:
                    yield document
                return
            file.seek(start)
            marks = re.compile("|".join(map(re.escape, agent.marks)).encode())
            while line := file.readline(LINE_BYTES_MAX):
                if not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX:
                    skipped.lines[path] += 1
                    begins_at = file.tell()
                    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
                        if file.tell() - begins_at > SKIPPED_BYTES_MAX:
                            skipped.files[path] = f"a line beyond {SKIPPED_BYTES_MAX >> 30} GiB"
                            return
                    continue
                # A prompt or a result of a tool is half of a log. A whole object, at least by its
                # ends, without the mark has no answer: a fifth of the reading (measured).
                is_object = line.startswith(b"{") and line.endswith(b"}\n")
                is_skipped = is_object and marks.search(line) is None
                if is_skipped and not json_values.has_escaped_key(line):
                    continue
                value = json_values.loads(line) if line.strip() else None
                if value is not None:
                    yield value
                elif line.strip():
                    skipped.lines[path] += 1
    except OSError:
        skipped.files[path] = ""


def _rows(agent: LoggedAgent, path: Path, skipped: SkippedCounts) -> Iterator[dict[str, Any]]:
    """The rows of a database, which the agent may be writing, by all statements that it answers."""
    limits = _Limits()
    is_answered = False
    try:
        wal = path.with_name(f"{path.name}-wal")
        size = path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
        url = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, DOCUMENT_BYTES_MAX)
            database.set_progress_handler(limits.are_passed, STEPS_COUNTED)
            for name, arguments in SUPERLINEAR.items():
                database.create_function(name, arguments, _no_function)
            database.execute("PRAGMA trusted_schema = OFF")  # its views call nothing of these
            for statement in agent.statements:
                limits.begin(size)
                answer = None
                try:
                    answer = database.execute(statement)
                    yield from _records(answer, path, skipped, limits)
                    is_answered = True
                except sqlite3.OperationalError:
                    if limits.are_passed():
                        (table,) = _TABLE.findall(statement)[:1]
                        skipped.files[path] = f"table {table} has more than the file can hold"
                    elif answer is not None:
                        raise
                    # Else it is a table of another version.
    except sqlite3.Error:  # damaged, or locked: the rest is not read
        is_answered = False
    if not is_answered:
        skipped.files.setdefault(path, "")


class _Limits:
    """How many steps and how much time a statement may take from now on, without its reader's."""

    def begin(self, size: int) -> None:
        self._steps_left = STEPS_FREE + STEPS_PER_BYTE * size
        self._seconds_left = SECONDS_FREE + SECONDS_PER_BYTE * size
        self._since: float | None = time.monotonic()

    def pause(self) -> None:
        """A row is read."""
        assert self._since is not None
        self._seconds_left -= time.monotonic() - self._since
        self._since = None

    def go_on(self) -> None:
        self._since = time.monotonic()

    def are_passed(self) -> bool:
        """Called every `STEPS_COUNTED` steps."""
        self._steps_left -= STEPS_COUNTED
        spent = time.monotonic() - self._since if self._since is not None else 0.0
        return self._steps_left < 0 or spent > self._seconds_left


def _no_function(*_: object) -> None:
    raise sqlite3.NotSupportedError


def _records(
    answer: sqlite3.Cursor, path: Path, skipped: SkippedCounts, limits: _Limits
) -> Iterator[dict[str, Any]]:
    names = [column for column, *_ in answer.description]
    for values in answer:
        limits.pause()
        row = dict(zip(names, values, strict=True))
        data = row.get("data")
        if isinstance(data, str):
            row["data"] = json_values.loads(data.encode("utf-8", "replace"))
            skipped.lines[path] += row["data"] is None
        yield row
        limits.go_on()
