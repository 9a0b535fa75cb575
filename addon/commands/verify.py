"""Edge. `tokentee verify`: checks the ledger's promises, and compares it with recordings.

The promises are asked of the database (`ledger.verification`). A recording proves what the ledger
alone cannot: that its digests are those of the bytes that upstream sent, and that stripping the
usage that we had asked for gives the bytes that the client received.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from addon.commands.options import Url
from addon.metering.settlement import METER_VERSION
from addon.recordings.files import files_of
from addon.recordings.formats.recorded import Recorded
from addon.recordings.matching import MatchCounts, is_other_answer, pairs
from addon.recordings.metered import client_body, reread
from ledger.commands.options import LedgerOption, Since, TimezoneOption, scope_of
from ledger.commands.output import print_line
from ledger.figures.queries import existing_ledger
from ledger.maintenance import corrections
from ledger.maintenance.checking import FAULTS_SHOWN_MAX, Finding
from ledger.maintenance.checking import verify as promises_of
from ledger.maintenance.corrections import Booked
from ledger.model.exchange import SESSION_REQUEST, Exchange
from ledger.reports.progress import console_on_stderr, files_progress
from ledger.text.printable import printable

CAPTURED = "captured"
"""The ledger's facts of a recorded answer agree with the recording."""
REREAD = "reread"
"""Not a promise: today's meter reads other figures, which a rebuild adds."""
SETTLED = "settled"
"""Not a promise: today's meter reads other facts of the exchange, which no rebuild changes."""
_CLIENT_SIDE = ("client_bytes", "removed_bytes", "client_digest", "removed_digest")

SHOWN_LENGTH_MAX = 200
"""Characters of one value in a breach."""
_REPRODUCIBLE = (
    *("origin", "dialect", "operation", "path", "request_model", "api_version"),
    *("response_model", "response_id", "id_unstable", "content_digest", "streamed"),
    *("state", "outcome", "http_status", "finish_reason", "error_type", "error_code"),
    *("error_message", "service_tier", "cache_diagnosis", "retry_after_ms"),
    *("request_bytes", "request_digest", "response_bytes", "events"),
    *("usage_asked", "agent", "user_agent", "end_user"),
)
"""The facts of an exchange that a recording can reproduce."""
_OF_BYTES = ("request_bytes", "request_digest", "response_bytes", "events")
_OF_REQUEST = ("request_bytes", "request_digest")

type Line = tuple[str, str, str]
"""The broken promise, the exchange, and the finding."""


def verify_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...",
            help="Captures to compare with the ledger; files and folders as for replay.",
            show_default=False,
        ),
    ] = None,
    *,
    since: Since = None,
    timezone: TimezoneOption = None,
    ledger: LedgerOption = None,
    url: Url = None,
) -> None:
    """Check the ledger: bytes, digests, readings, charges, duplicates and sums.

    Every promise is a query to the database itself. With captures, each answer in them is also
    compared with the digest of the upstream bytes, stripped again if usage had been asked for, and
    metered again; a meter that reads it differently now is no breach (`tokentee rebuild`).

    Each breach is a line on stdout: the promise, the row, what was found; the last line is the
    verdict. Exit code 1 if there is any.
    """
    begin = scope_of(since, None, None, timezone=timezone).since
    files = files_of(paths or [], bodies_too=url is not None)
    console = console_on_stderr()
    with existing_ledger(ledger) as engine:
        broken = 0
        for finding in promises_of(engine, begin):
            broken += _show(console, finding)
        if files:
            found, counts, breaches = MatchCounts(), Counter[str](), list[Line]()
            find = partial(corrections.find, engine)
            with files_progress(console, "reading", files) as advance:
                both = pairs(files, find, found, url=url, since=begin, advance=advance)
                for line in compared(both, found):
                    counts[line[0]] += 1
                    if line[0] == CAPTURED and len(breaches) < FAULTS_SHOWN_MAX:
                        breaches.append(line)
            word = "BROKEN  " if breaches else "holds   "
            console.print(
                f"{word}digests and lengths are those of the {found.matched:,} recorded answers"
            )
            for breach in breaches:
                _breach(*breach)
            _rest(CAPTURED, counts[CAPTURED] - len(breaches))
            reread_count, settled_count = counts[REREAD], counts[SETTLED]
            if reread_count:
                again = shlex.join([*(["--url", url] if url else []), *map(str, paths or [])])
                print_line(
                    f"remark  {reread_count:,} are read differently by this version: "
                    f"`tokentee rebuild {again}`"
                )
            if settled_count:
                console.print(
                    f"remark  {settled_count:,} would be settled with other facts by this "
                    "version, such as outcome or finish reason; what is settled stays"
                )
            for text in found.lines():
                print_line(text)
            broken += counts[CAPTURED] + (not found.is_whole)
    counted_breaches = "1 breach" if broken == 1 else f"{broken} breaches"
    typer.echo(counted_breaches if broken else "everything holds")
    raise typer.Exit(1 if broken else 0)


def compared(both: Iterable[tuple[Recorded, Booked]], found: MatchCounts) -> Iterator[Line]:
    """Where recordings and ledger differ."""
    for item, booked in both:
        found.matched += 1
        exchange = booked.exchange
        if is_other_answer(item, booked):
            yield CAPTURED, exchange.id, "the recorded answer is not what upstream sent"
            continue
        again = reread(item, exchange)
        if again is None:
            yield SETTLED, exchange.id, "no LLM call any more"
            continue
        if exchange.client_digest is not None and item.is_exact:
            sides = _different(_CLIENT_SIDE, exchange, again.exchange)
            # The end of the body may not have been seen, so accept the digests with and without it.
            cut = reread(item, exchange, reached_end=False) if sides else None
            if sides and (cut is None or _different(_CLIENT_SIDE, exchange, cut.exchange)):
                yield CAPTURED, exchange.id, "; ".join(sides)
        differ = {CAPTURED: list[str](), SETTLED: list[str](), REREAD: list[str]()}
        # The facts in which ledger and recording differ: none, if it was not read in full then.
        names = list(_REPRODUCIBLE) if exchange.degraded is None else []
        if exchange.operation == SESSION_REQUEST:
            names.remove("request_model")  # of the session, which another answer states
        left_out = set[str]()
        if not item.is_exact:
            left_out.update(_OF_BYTES)
        if client_body(item, is_injected=exchange.usage_injected) is None:
            left_out.update(_OF_REQUEST)  # ours is recorded
        if not item.request_body:
            left_out.update(_OF_REQUEST)  # there was none, or it is lost
        if exchange.request_digest is None:
            left_out.add("request_digest")  # before migration 0005
        # Whether the messages of errors are kept is an option, and a recording does not have the
        # credentials whose repetition the recorder left out.
        left_out.add("error_message")
        if item.redacted_request_headers:
            left_out.update(name for name in names if getattr(exchange, name) is None)
        names = [name for name in names if name not in left_out]
        facts = _different(names, exchange, again.exchange)
        differ[CAPTURED if booked.first_meter_version == METER_VERSION else SETTLED] += facts
        differ[CAPTURED if booked.reading.meter_version == METER_VERSION else REREAD] += [
            _difference(name, *both)
            for name, both in corrections.differences(booked.reading, again.reading).items()
            if name != "billing"  # the operator's names file may have decided it
        ]
        for kind, details in differ.items():
            if details:
                yield kind, exchange.id, "; ".join(details)


def _different(names: Iterable[str], booked: Exchange, again: Exchange) -> list[str]:
    """Those of the named facts that differ."""
    return [
        _difference(name, getattr(booked, name), getattr(again, name))
        for name in names
        if getattr(booked, name) != getattr(again, name)
    ]


def _difference(name: str, booked: object, now: object) -> str:
    old, new = str(booked)[:SHOWN_LENGTH_MAX], str(now)[:SHOWN_LENGTH_MAX]
    return f"{name} is {old}, the recording gives {new}"


def _show(console: Console, finding: Finding) -> int:
    """Print the result of checking a promise; the number of its breaches."""
    promise = finding.promise
    if not finding.is_checked:
        console.print(escape(f"skipped {promise.holds}: it needs the whole ledger, not --since"))
        return 0
    if not finding.count:
        console.print(escape(f"holds   {promise.holds}"))
        return 0
    word = "remark" if promise.is_remark else "BROKEN"
    console.print(escape(f"{word}  {promise.holds}: not so for {finding.count:,}"))
    if promise.is_remark:
        return 0
    for name, detail in finding.examples:
        _breach(promise.name, name, detail)
    _rest(promise.name, finding.count - len(finding.examples))
    return finding.count


def _breach(promise: str, name: str, detail: str) -> None:
    typer.echo(f"{promise}\t{printable(name)}\t{printable(detail)}")


def _rest(promise: str, count: int) -> None:
    if count > 0:
        typer.echo(f"{promise}\t\t… and {count:,} more")
