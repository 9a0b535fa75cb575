"""Edge. Finds session logs, and reads them line by line within bounds."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addon.agent_logs.agents import AGENTS
from addon.agent_logs.call import LoggedAgent
from addon.framing import json_values
from ledger.model.errors import LedgerError

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A line with a pasted picture has megabytes; a longer one is skipped, and counted."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""A whole session as one JSON document."""


@dataclass(slots=True)
class SkippedCounts:
    """Counts of unreadable lines and files."""

    lines: int = 0
    """Lines that are not a JSON object, or too long."""
    files: int = 0
    """Files that could not be opened."""


def find(agent: LoggedAgent, environment: Mapping[str, str], home: Path) -> list[Path]:
    """The logs of an agent, in a fixed order; links are not followed out of its folder."""
    folder = agent.folder(environment, home)
    found = {path for pattern in agent.patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def agent_of(path: Path) -> LoggedAgent | None:
    """Which agent's log a file is, by its path or its first lines."""
    for agent in AGENTS.values():
        if any(path.match(f"*/{pattern}") for pattern in agent.patterns):
            return agent
    first = next(iter(read(path, SkippedCounts())), {})
    if "payload" in first:
        return AGENTS["codex"]
    if "messages" in first or first.get("type") == "gemini" or "projectHash" in first:
        return AGENTS["gemini-cli"]
    if "sessionId" in first or "leafUuid" in first:
        return AGENTS["claude-code"]
    return None


def named(paths: Iterable[Path]) -> Iterator[tuple[LoggedAgent, Path]]:
    """The logs among these files and folders. LedgerError for a missing path, and for a file that
    is not a session log."""
    for path in paths:
        if path.is_dir():
            for found in sorted(path.rglob("*.json*")):
                agent = agent_of(found) if found.is_file() and not found.is_symlink() else None
                if agent is not None:
                    yield agent, found
        elif path.is_file():
            agent = agent_of(path)
            if agent is None:
                raise LedgerError(f"{path}: not a session log of {', '.join(AGENTS)}")
            yield agent, path
        else:
            raise LedgerError(f"{path}: no such file or folder")


def read(path: Path, skipped: SkippedCounts) -> Iterator[dict[str, Any]]:
    """The JSON objects of a log, in order. A partial last line, as in a running session, is left
    out."""
    try:
        with path.open("rb") as file:
            if path.suffix == ".json":
                document = json_values.loads(file.read(DOCUMENT_BYTES_MAX))
                if document is None:
                    skipped.files += 1
                else:
                    yield document
                return
            while line := file.readline(LINE_BYTES_MAX):
                if not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX:
                    skipped.lines += 1
                    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
                        pass
                    continue
                value = json_values.loads(line) if line.strip() else None
                if value is not None:
                    yield value
                elif line.strip():
                    skipped.lines += 1
    except OSError:
        skipped.files += 1


def user_home() -> Path:
    """The user's home folder."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises if there is none
