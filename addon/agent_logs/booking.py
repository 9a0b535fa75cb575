"""Edge. Finds session logs, reads them line by line within bounds, and books them in the ledger:
each answer once, and not if it was recorded live."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import batched
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from addon.agent_logs.agents import AGENTS
from addon.agent_logs.call import Booked, LoggedAgent, LoggedCall, booked
from addon.framing import json_values
from ledger.maintenance.known import KnownExchanges, Logged, recorded
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, Exchange
from ledger.store.scope import Scope
from ledger.store.writing.jobs import Commits
from ledger.store.writing.writer import Ledger

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


BATCH_MAX = 500
"""Answers per lookup and per write."""
RUNNING_FOR = timedelta(seconds=60)
"""An answer this recent may still be incomplete; the next import books it."""


@dataclass(slots=True)
class ImportTally:
    """Counts of one agent's answers, by result."""

    files: int = 0
    sessions: set[str] = field(default_factory=set)
    new: int = 0
    known: int = 0
    """Imported before."""
    live: int = 0
    """Recorded live: that row counts, with its key and its bytes."""
    running: int = 0
    """Too recent to be complete."""
    outside: int = 0
    """Outside of the requested period."""
    refused: int = 0
    """The ledger refused them."""
    skipped: SkippedCounts = field(default_factory=SkippedCounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """Books answers in a ledger. `ledger` None: answers are only counted."""

    known: KnownExchanges | None
    """None: there is no ledger yet."""
    ledger: Ledger | None
    commits: Commits
    scope: Scope
    """Its times: which answers to book."""
    tags: Mapping[str, str]
    now: datetime
    billing: Callable[[Exchange], Billing | None] = lambda _: None
    """The operator's own word on how an exchange is billed: logs do not say it."""

    def take(
        self, logs: Iterable[tuple[LoggedAgent, Path]], *, progress: Callable[[Path], None]
    ) -> dict[str, ImportTally]:
        """Book the answers of all logs; the counts by agent. `progress` is called before each
        file."""
        tallies: dict[str, ImportTally] = {}
        for agent, path in logs:
            progress(path)
            tally = tallies.setdefault(agent.name, ImportTally())
            tally.files += 1
            calls = self._wanted(agent.calls(read(path, tally.skipped)), tally)
            for batch in batched(calls, BATCH_MAX):
                self._book(batch, path, tally)
        return tallies

    def _wanted(self, calls: Iterable[LoggedCall], tally: ImportTally) -> Iterator[LoggedCall]:
        for call in calls:
            tally.sessions.add(call.session_id)
            is_early = self.scope.since is not None and call.at < self.scope.since
            if is_early or (self.scope.until is not None and call.at >= self.scope.until):
                tally.outside += 1
            elif call.at > self.now - RUNNING_FOR:
                tally.running += 1
            else:
                yield call

    def _book(self, batch: Sequence[LoggedCall], path: Path, tally: ImportTally) -> None:
        made = [
            booked(call, now=self.now, capture=f"{path}#{call.exchange_id}", tags=self.tags)
            for call in batch
        ]
        made = [(one, replace(read, billing=self.billing(one))) for one, read in made]
        known, live = self._there(made)
        receipts = []
        seen: set[str] = set()
        for (exchange, reading), is_live in zip(made, live, strict=True):
            if exchange.id in known or exchange.id in seen:
                tally.known += 1
            elif is_live:
                tally.live += 1
            else:
                seen.add(exchange.id)
                tally.new += 1
                if self.ledger is not None:
                    receipts.append(self.ledger.settle(exchange, reading))
        self.commits.wait(len(receipts))
        failed = sum(not receipt.committed for receipt in receipts)
        tally.refused += failed
        tally.new -= failed

    def _there(self, made: Sequence[Booked]) -> tuple[set[str], list[bool]]:
        """The ids that were imported before, and for each answer whether it was recorded live."""
        if self.known is None:
            return set(), [False] * len(made)
        ids = [exchange.id for exchange, _ in made]
        answers = [
            Logged(
                at=exchange.opened_at,
                response_id=exchange.response_id,
                session_id=exchange.session_id or "",
                input_tokens=reading.usage.input_tokens,
                output_tokens=reading.usage.output_tokens,
            )
            for exchange, reading in made
        ]
        found = [recorded(engine, answers) for engine in self.known.engines]
        live = [any(columns) for columns in zip(*found, strict=True)]
        return set(self.known.settled(ids)), live
