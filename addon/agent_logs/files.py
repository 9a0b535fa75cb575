"""Edge. Finds session logs, and reads them line by line within bounds."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addon.agent_logs import claude_code, codex, gemini_cli
from addon.agent_logs.call import Call
from addon.framing import json_values
from ledger.model.errors import LedgerError

LINE_BYTES_MAX = 16 * 1024 * 1024
"""A line with a pasted picture has megabytes; a longer one is skipped, and counted."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""A whole session as one JSON document."""

type Lines = Iterable[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One agent's logs."""

    name: str
    home_variable: str
    """The environment variable that moves the agent's folder."""
    home: str
    """The agent's folder in the user's home."""
    patterns: tuple[str, ...]
    calls: Callable[[Lines], Iterator[Call]]

    def folder(self, environment: Mapping[str, str], home: Path) -> Path:
        """The folder of this agent's files."""
        named = environment.get(self.home_variable)
        return Path(named) if named else home / self.home


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="claude-code",
            home_variable="CLAUDE_CONFIG_DIR",
            home=".claude",
            patterns=("projects/**/*.jsonl",),
            calls=claude_code.calls,
        ),
        Kind(
            name="codex",
            home_variable="CODEX_HOME",
            home=".codex",
            patterns=("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl"),
            calls=codex.calls,
        ),
        Kind(
            name="gemini-cli",
            home_variable="GEMINI_CLI_HOME",
            home=".gemini",
            patterns=("tmp/*/chats/session-*.json", "tmp/*/chats/session-*.jsonl"),
            calls=gemini_cli.calls,
        ),
    )
}


@dataclass(slots=True)
class Skipped:
    """Counts of unreadable lines and files."""

    lines: int = 0
    """Lines that are not a JSON object, or too long."""
    files: int = 0
    """Files that could not be opened."""


def find(kind: Kind, environment: Mapping[str, str], home: Path) -> list[Path]:
    """The logs of an agent, in a fixed order; links are not followed out of its folder."""
    folder = kind.folder(environment, home)
    found = {path for pattern in kind.patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def kind_of(path: Path) -> Kind | None:
    """Which agent's log a file is, by its path or its first lines."""
    for kind in KINDS.values():
        if any(path.match(f"*/{pattern}") for pattern in kind.patterns):
            return kind
    first = next(iter(read(path, Skipped())), {})
    if "payload" in first:
        return KINDS["codex"]
    if "messages" in first or first.get("type") == "gemini" or "projectHash" in first:
        return KINDS["gemini-cli"]
    if "sessionId" in first or "leafUuid" in first:
        return KINDS["claude-code"]
    return None


def named(paths: Iterable[Path]) -> Iterator[tuple[Kind, Path]]:
    """The logs among these files and folders. LedgerError for a missing path, and for a file that
    is not a session log."""
    for path in paths:
        if path.is_dir():
            for found in sorted(path.rglob("*.json*")):
                kind = kind_of(found) if found.is_file() and not found.is_symlink() else None
                if kind is not None:
                    yield kind, found
        elif path.is_file():
            kind = kind_of(path)
            if kind is None:
                raise LedgerError(f"{path}: not a session log of {', '.join(KINDS)}")
            yield kind, path
        else:
            raise LedgerError(f"{path}: no such file or folder")


def read(path: Path, skipped: Skipped) -> Iterator[dict[str, Any]]:
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
                    _skip_line(file)
                    continue
                value = json_values.loads(line) if line.strip() else None
                if value is not None:
                    yield value
                elif line.strip():
                    skipped.lines += 1
    except OSError:
        skipped.files += 1


def _skip_line(file: Any) -> None:
    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
        pass


def user_home() -> Path:
    """The user's home folder."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises if there is none
