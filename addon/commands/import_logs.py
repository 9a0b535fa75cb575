"""Wiring. `tokentee import`: the session logs that agents keep on disk."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from addon.agent_logs import booking
from addon.agent_logs.agents import AGENTS
from addon.agent_logs.booking import ImportTally
from addon.agent_logs.call import LoggedAgent
from ledger import recording
from ledger.commands.options import LedgerOption, Prices, Since, TimezoneOption, Until, scope_of
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.reports.progress import console_on_stderr, files_progress
from ledger.settings import names_file
from ledger.store.engines.urls import default_url, shown
from ledger.store.writing.jobs import Commits
from ledger.text.figures import counted
from ledger.text.hints import suggestion


def import_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...",
            help="Logs or folders of them. Default: where Claude Code, Codex and Gemini CLI keep "
            "theirs.",
            show_default=False,
        ),
    ] = None,
    *,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only claude-code, codex or gemini-cli; may be repeated."
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    timezone: TimezoneOption = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A tag for every answer; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the answers without booking them.")
    ] = False,
    ledger: LedgerOption = None,
    prices: Prices = None,
) -> None:
    """Book the answers in agents' own session logs, once each.

    An answer that was recorded live keeps its row. A second import adds nothing. Prompts and
    answers are skipped and never kept. Exit code 1: nothing was found, or something was refused.
    """
    agents = _agents(agent or [])
    tags = _tags(tag or [])
    scope = scope_of(since, until, None, timezone=timezone)
    logs = (
        list(booking.named(paths))
        if paths
        else [
            (one, path)
            for one in agents
            for path in booking.find(one, os.environ, booking.user_home())
        ]
    )
    logs = [(one, path) for one, path in logs if one in agents]
    if not logs:
        looked = ", ".join(str(one.folder(os.environ, booking.user_home())) for one in agents)
        raise LedgerError(f"no session logs: looked in {looked}; name files or folders")
    url = ledger or default_url()
    console = console_on_stderr()
    commits = Commits()
    writer = None
    if not dry_run:
        writer = recording.open_ledger(
            url,
            node=f"import/{os.getpid()}/{int(time.time())}",
            price=PriceBook.load(prices).price,
            on_commit=commits.on_commit,
            log=lambda _, text: console.print(text, markup=False),
        )
    try:
        known = KnownExchanges(url)
    except LedgerError:
        if not dry_run:
            raise
        known = None
    try:
        with files_progress(console, "importing", [path for _, path in logs]) as advance:
            tallies = booking.Booking(
                known=known,
                ledger=writer,
                commits=commits,
                scope=scope,
                tags=tags,
                now=datetime.now(UTC),
                billing=names_file.load(None).billing_of,
            ).take(logs, progress=lambda path: advance(path, path.stat().st_size))
    finally:
        if known is not None:
            known.close()
        if writer is not None:
            writer.close(60.0)
    for name, tally in tallies.items():
        for text in _lines(name, tally, is_dry=dry_run):
            console.print(text, markup=False, soft_wrap=True)
    console.print(f"ledger: {shown(url)}", markup=False, soft_wrap=True)
    if any(tally.refused for tally in tallies.values()):
        raise typer.Exit(1)


def _agents(names: list[str]) -> list[LoggedAgent]:
    for name in names:
        if name not in AGENTS:
            hint = suggestion(name, AGENTS)
            raise LedgerError(f"--agent {name!r}: unknown{hint}; one of {', '.join(AGENTS)}")
    return [agent for agent in AGENTS.values() if not names or agent.name in names]


def _tags(words: list[str]) -> dict[str, str]:
    tags = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise LedgerError(f"--tag {word!r} is not NAME=VALUE; write --tag team=search")
        tags[name.strip()] = value.strip()
    return tags


def _lines(name: str, tally: ImportTally, *, is_dry: bool) -> Iterator[str]:
    """The counts of one agent's logs, as lines."""

    verb = "would be booked" if is_dry else "booked"
    parts = [f"{tally.new:,} {verb}"]
    for count, text in (
        (tally.known, "known"),
        (tally.live, "recorded live"),
        (tally.running, "still running"),
        (tally.outside, "outside of the period"),
        (tally.refused, "refused by the ledger"),
    ):
        if count:
            parts.append(f"{count:,} {text}")
    yield (
        f"{name}: {counted(tally.files, 'log')}, {counted(len(tally.sessions), 'session')}: "
        + ", ".join(parts)
    )
    skipped = tally.skipped
    if skipped.lines or skipped.files:
        yield (
            f"{name}: not read: {counted(skipped.lines, 'line')}, {counted(skipped.files, 'file')}"
        )
