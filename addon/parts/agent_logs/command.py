"""Wiring. `tokentee import`: the session logs that agents keep on disk."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from addon.parts.agent_logs import booking, comparison, files
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.booking import ImportTally
from addon.parts.agent_logs.unchanged import UnchangedLogs
from ledger import recording
from ledger.commands import output
from ledger.commands.options import (
    Form,
    LedgerOption,
    Prices,
    Since,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.figures import queries
from ledger.figures.queries import existing_ledger
from ledger.maintenance.known import KnownExchanges
from ledger.model.errors import LedgerError
from ledger.pricing.prices import PriceBook
from ledger.reports import report_tables
from ledger.reports.layout import Table, TableColumn
from ledger.reports.progress import console_on_stderr, files_progress
from ledger.settings import names_file
from ledger.store.engines.urls import default_url, shown
from ledger.store.scope import Scope
from ledger.store.writing.incoming import Commits
from ledger.text.figures import counted, money
from ledger.text.hints import suggestion
from ledger.text.printable import printable

THIS_MONTH = "this-month"
NEXT = (
    "Next:",
    "  tokentee report --by day",
    "  tokentee serve --open",
    "  tokentee run -- claude",
)
NAMED_MAX = 5
"""Logs that are named as not read."""
_HEADINGS = {
    "agent": "Agent",
    "session": "Session",
    "messages_both": "Both",
    "messages_log": "Log only",
    "messages_wire": "Wire only",
    "input_tokens": "Input",
    "cache_read_tokens": "Cache read",
    "cache_write_tokens": "Cache write",
    "output_tokens": "Output",
}
"""Of --compare; the figures are what the log has for each token of the wire."""


def import_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...",
            help="Logs or folders of them. Default: where the agents keep theirs.",
            show_default=False,
        ),
    ] = None,
    *,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this agent: claude-code, codex, gemini-cli, …; may be repeated.",
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
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Only compare the logs with what was recorded."),
    ] = False,
    form: Form = "table",
    ledger: LedgerOption = None,
    prices: Prices = None,
) -> None:
    """Book the answers in agents' own session logs, once each.

    An answer that was recorded live keeps its row. A second import adds nothing, unless a log has
    more of an answer than before. Prompts and answers are skipped and never kept. Exit code 1:
    nothing was found, or something was refused.
    """
    for name in agent or ():
        if name not in AGENTS:
            hint = suggestion(name, AGENTS)
            raise LedgerError(f"--agent {name!r}: unknown{hint}; one of {', '.join(AGENTS)}")
    agents = [each for each in AGENTS.values() if not agent or each.name in agent]
    tags = _tags(tag or [])
    scope = scope_of(since, until, None, timezone=timezone)
    home = files.user_home()
    logs = (
        list(files.named(paths))
        if paths
        else [(each, path) for each in agents for path in files.find(each, os.environ, home)]
    )
    logs = [(each, path) for each, path in logs if each in agents]
    if not logs:
        looked = [str(path) for each in agents for path in files.folders(each, os.environ, home)]
        raise LedgerError(f"no session logs: looked in {', '.join(looked)}; name files or folders")
    url = ledger or default_url()
    console = console_on_stderr()
    tallies: dict[str, ImportTally] = {}
    now = datetime.now(UTC)
    with (
        ExitStack() as stack,
        recording.few_collections(),
        files_progress(console, "reading", [path for _, path in logs]) as advance,
    ):
        if compare:
            ledgers = [stack.enter_context(closing(KnownExchanges(url)))]
            stated = booking.answers(
                logs,
                tallies,
                scope=scope,
                now=now,
                running_for=timedelta(0),
                unchanged=UnchangedLogs(None),
                progress=lambda path: advance(path, path.stat().st_size),
            )
            calls = [call for call, *_ in stated]
            found = comparison.compare(
                calls,
                [
                    answer
                    for answer in booking.booked_like(
                        ledgers, calls, whole_agents=[each.name for each in agents]
                    )
                    if (scope.since is None or answer.opened_at >= scope.since)
                    and (scope.until is None or answer.opened_at < scope.until)
                ],
            )
        else:
            commits, book = Commits(), PriceBook.load(prices)
            # A dry run books into a ledger that nobody keeps.
            written = (
                f"sqlite:///{stack.enter_context(TemporaryDirectory())}/dry" if dry_run else url
            )
            writer = recording.open_ledger(
                written,
                node=f"import/{os.getpid()}/{int(time.time())}",
                price=book.price,
                on_commit=commits.on_commit,
                log=lambda _, text: console.print(text, markup=False),
                has_companions=not dry_run,
                is_bulk=True,
            )
            stack.callback(writer.close, 60.0)
            ledgers = [stack.enter_context(closing(KnownExchanges(written)))]
            with suppress(LedgerError):
                if dry_run:
                    ledgers.append(stack.enter_context(closing(KnownExchanges(url))))
            unchanged = UnchangedLogs(ledgers[-1] if ledgers[1:] or not dry_run else None)
            booking.Booking(
                places=ledgers,
                ledger=writer,
                commits=commits,
                prices=book,
                tags=tags,
                now=now,
                unchanged=unchanged,
                has_all=not paths,
                is_dry=dry_run,
                billing=names_file.load(None).billing_of,
            ).take(
                booking.answers(
                    logs,
                    tallies,
                    scope=scope,
                    now=now,
                    unchanged=unchanged,
                    progress=lambda path: advance(path, path.stat().st_size),
                )
            )
            if not dry_run:
                unchanged.save(ledgers[0])
    if compare:
        table = Table(
            columns=tuple(
                TableColumn(name=name, heading=heading, is_number=place > 1)
                for place, (name, heading) in enumerate(_HEADINGS.items())
            ),
            rows=tuple(
                (
                    *(row.agent, row.session, row.messages_both),
                    row.messages_log - row.messages_both,
                    row.messages_wire - row.messages_both,
                    *(f"{each:.2f}" if each is not None else None for each in row.factor.values()),
                )
                for row in found
            ),
        )
        document = [asdict(row) | {"factor": row.factor} for row in found]
        output.write(form, table, document)
        if not found:
            output.print_line("no session is in the logs or in the ledger")
        return
    for name, tally in tallies.items():
        for text in _lines(name, tally, is_dry=dry_run):
            console.print(text, markup=False, soft_wrap=True)
    console.print(f"ledger: {shown(url)}", markup=False, soft_wrap=True)
    if not dry_run:
        is_bounded = since or until
        _show_costs(url, scope if is_bounded else scope_of(THIS_MONTH, None, None, None, timezone))
    if any(tally.refused for tally in tallies.values()):
        raise typer.Exit(1)


def _show_costs(url: str, scope: Scope) -> None:
    """What the period cost by model, or all time if nothing is in the period; what all time cost;
    and what next."""
    with existing_ledger(url) as engine:
        found = queries.report(engine, ["model"], scope)
        everything = queries.report(engine, ["model"], Scope(zone=scope.zone))
    whole = everything.total.figures
    if not found.total.figures.requests:
        found = everything
    if found.total.figures.requests:
        sys.stderr.write("\n")
        table = report_tables.screen(found)
        output.print_table(table, report_tables.title(found), is_error=True)
        for note in report_tables.notes(found):
            output.print_line(note)
        if whole.requests > found.total.figures.requests:
            cost = money(whole.cost_picousd, is_lower_bound=bool(whole.without_price))
            requests = counted(whole.requests, "request")
            output.print_line(f"all time: {requests}, {cost}: tokentee report")
        for line in NEXT:
            output.print_line(line)


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
        (tally.corrected, "would be corrected" if is_dry else "corrected"),
        (tally.live, "recorded live"),
        (tally.running, "still running"),
        (tally.future, "of a time to come"),
        (tally.outside, "outside of the period"),
        (tally.refused, "refused by the ledger"),
    ):
        if count:
            parts.append(f"{count:,} {text}")
    yield (
        f"{name}: {counted(tally.files, 'log')}, {counted(len(tally.sessions), 'session')}: "
        + ", ".join(parts)
    )
    whys = tally.skipped.files
    for noun, paths, count in (
        ("line", tally.skipped.lines, tally.skipped.lines.total()),
        ("log", whys, len(whys)),
    ):
        if count:
            names = ", ".join(
                printable(path.name + (f": {whys[path]}" if noun == "log" and whys[path] else ""))
                for path in islice(paths, NAMED_MAX)
            )
            rest = ", …" if len(paths) > NAMED_MAX else ""
            yield f"{name}: not read: {counted(count, noun)} ({names}{rest})"
