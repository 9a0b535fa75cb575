"""Edge. `tokentee rebuild`: meters recordings again, and adds a reading where figures differ.

Booked readings stay: a reading with other figures is added as the next revision, with charges at
the prices of the exchange's own time, and states what changed. The exchange's other facts (model,
tier, outcome) stay as they were settled, and decide its prices.

Everything is read twice, once to show the changes and once to write them, so that memory holds one
answer at a time for any amount of recordings.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from functools import partial
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.markup import escape

from addon.commands.options import Recordings, Url
from addon.metering.settlement import METER_VERSION
from addon.recordings.files import files_of
from addon.recordings.formats.recorded import Recorded
from addon.recordings.matching import MatchCounts, is_other_answer, pairs
from addon.recordings.metered import reread
from ledger.commands.options import LedgerOption, Prices
from ledger.commands.output import print_line
from ledger.figures.figures import plus
from ledger.figures.queries import existing_ledger
from ledger.maintenance import corrections
from ledger.maintenance.corrections import Booked, Further
from ledger.model.charge import remarked
from ledger.model.exchange import Billing, Exchange
from ledger.pricing.charges import charge
from ledger.pricing.prices import PriceBook
from ledger.reports.layout import Cell, Table, TableColumn
from ledger.reports.progress import console_on_stderr, files_progress, rest_line
from ledger.reports.render import print_table
from ledger.settings import names_file
from ledger.store.writing.batch_insert import READING_COLUMNS
from ledger.text.figures import counted, money
from ledger.text.printable import printable

READINGS_BATCH = 100
"""Readings written in one transaction: some milliseconds beside a live proxy."""
CHANGES_SHOWN_MAX = 20
CHANGED_VALUE_LENGTH_MAX = 100


def rebuild_command(
    paths: Recordings,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Also make changes that lose booked tokens or a price.")
    ] = False,
    ledger: LedgerOption = None,
    url: Url = None,
    prices: Prices = None,
) -> None:
    """Read booked exchanges again from their recordings, with the meter of this version.

    If a figure differs, a further reading is added, priced as of the exchange's own time; it counts
    from then on and states what changed. The earlier readings stay. A second rebuild adds nothing.
    Exchanges that the ledger does not have are left alone: `tokentee replay` reads those in.

    Exit code 1: a recording cannot be read, is not what upstream sent, or is refused by the ledger;
    none is in the ledger; or booked tokens or a price would be lost, so nothing was written.
    """
    files = files_of(paths, bodies_too=url is not None)
    book = PriceBook.load(prices)
    billing = names_file.load(None).billing_of
    console = console_on_stderr()
    tally, refused = RebuildTally(), list[str]()
    with existing_ledger(ledger) as engine:

        def read(step: str, tally: RebuildTally) -> Iterator[Again]:
            find = partial(corrections.find, engine)
            with files_progress(console, step, files) as advance:
                both = pairs(files, find, tally.found, url=url, advance=advance)
                yield from read_again(both, book, tally, billing)

        deque(read("reading", tally), maxlen=0)
        if tally.changes:
            print_table(table(tally.changes), console)
        differ = sum(change.exchanges for change in tally.changes.values())
        console.print(
            f"{differ} exchanges are read differently now, {tally.same} as they are booked"
        )
        for name in tally.altered[:CHANGES_SHOWN_MAX]:
            console.print(escape(f"not used: {name}: the recording is not what upstream sent"))
        if rest := rest_line(len(tally.altered), CHANGES_SHOWN_MAX):
            console.print(rest)
        for line in tally.found.lines():
            print_line(line)
        if tally.lost:
            console.print(
                f"{counted(tally.lost, 'exchange')} would lose booked tokens or a price: name the "
                "price file with --prices, or --accept that"
            )
        is_refused = bool(tally.lost) and not (accept or dry_run)
        if dry_run or is_refused:
            console.print("nothing was written")
        elif tally.changes or tally.has_limits:
            added = limits = 0
            for batch in itertools.batched(read("writing", RebuildTally()), READINGS_BATCH):
                further = [each.further for each in batch if each.further is not None]
                done, not_taken = corrections.add_readings(engine, further)
                added += done
                refused += not_taken
                stated = [each.limits for each in batch if each.limits is not None]
                limits += corrections.add_quotas(engine, stated)
            if limits:
                console.print(f"{limits} rows of limits were added")
            if tally.changes:
                stay = "the earlier readings stay in the table readings"
                console.print(f"{added} readings were added; {stay}")
            for line in refused[:CHANGES_SHOWN_MAX]:
                console.print(escape(f"refused: {line}"))
    is_wrong = tally.altered or refused or is_refused or not tally.found.is_whole
    raise typer.Exit(1 if is_wrong else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildChange:
    """The changes of a rebuild for some exchanges. None: nothing was reported, or has a price."""

    exchanges: int = 0
    input_before: int | None = None
    input_after: int | None = None
    output_before: int | None = None
    output_after: int | None = None
    before_picousd: int | None = None
    after_picousd: int | None = None

    @property
    def loses_a_figure(self) -> bool:
        """Whether booked tokens, or a booked price, would be none."""
        _, *figures = astuple(self)
        pairs_of = zip(figures[::2], figures[1::2], strict=True)
        return any(before is not None and after is None for before, after in pairs_of)

    def __add__(self, other: RebuildChange) -> RebuildChange:
        sums: dict[str, Any] = {
            each.name: plus(getattr(self, each.name), getattr(other, each.name))
            for each in fields(RebuildChange)
        }
        return RebuildChange(**sums)


@dataclass(slots=True)
class RebuildTally:
    """The result of reading the files."""

    found: MatchCounts = field(default_factory=MatchCounts)
    same: int = 0
    altered: list[str] = field(default_factory=list)
    """Exchanges whose recording differs from the upstream bytes, by the ledger's digest: not
    used."""
    changes: dict[tuple[str, str], RebuildChange] = field(
        default_factory=lambda: defaultdict(RebuildChange)
    )
    """By dialect and model."""
    lost: int = 0
    """Exchanges of which a booked figure would be none."""
    has_limits: bool = False
    """Some answers stated limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """An exchange that was read again."""

    further: Further | None
    """The reading to add, with its charges; None: it is booked."""
    limits: Exchange | None
    """The exchange, if its answer stated limits, which may not be booked."""


def read_again(
    both: Iterable[tuple[Recorded, Booked]],
    book: PriceBook,
    tally: RebuildTally,
    billing: Callable[[Exchange], Billing | None],
) -> Iterator[Again]:
    """What there is to add; `tally` counts the changes. `billing`: the operator's own word on how
    an exchange is billed."""
    for item, booked in both:
        if is_other_answer(item, booked):
            tally.altered.append(item.name)
            continue
        tally.found.matched += 1
        exchange = booked.exchange
        again = reread(item, exchange, billing=billing)
        limits = again.exchange.quotas if again is not None else ()
        further: Further | None = None
        changes: Mapping[str, tuple[object, object]] = {}
        if again is not None:
            reading = replace(again.reading, exchange_id=exchange.id, opened_at=exchange.opened_at)
            changes = corrections.differences(booked.reading, reading)
        if not changes:
            tally.same += 1
        else:
            # For a long value only the fact that it changed.
            changed = ", ".join(
                f"{name} {_text(before)} -> {_text(now)}" if name in _SHORT else name
                for name, (before, now) in changes.items()
            )
            reading = replace(reading, reason=f"rebuilt by meter {METER_VERSION}: {changed}")
            lines = charge(exchange, reading, book)
            further = remarked(reading, lines), lines
            amounts = [line.amount_picousd for line in lines if line.amount_picousd is not None]
            model = printable(exchange.model or "(none)")
            change = RebuildChange(
                exchanges=1,
                input_before=booked.reading.usage.input_tokens,
                input_after=reading.usage.input_tokens,
                output_before=booked.reading.usage.output_tokens,
                output_after=reading.usage.output_tokens,
                before_picousd=booked.cost_picousd,
                after_picousd=sum(amounts) if amounts else None,
            )
            tally.changes[exchange.dialect, model] += change
            tally.lost += change.loses_a_figure
        tally.has_limits = tally.has_limits or bool(limits)
        if further or limits:
            yield Again(
                further=further, limits=replace(exchange, quotas=limits) if limits else None
            )


_SHORT = frozenset(
    {name for name in READING_COLUMNS if name.endswith(("_tokens", "_picousd"))}
    | {"usage_source", "is_byok", "tool_units"}
)


def _text(value: object) -> str:
    return "NULL" if value is None else str(value)[:CHANGED_VALUE_LENGTH_MAX]


def table(changes: Mapping[tuple[str, str], RebuildChange]) -> Table:
    """The changes by dialect and model, and in total."""
    names = ("Dialect", "Model", "Exchanges", "Input", "now", "Output", "now", "Cost", "now")
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name, is_number=at > 1) for at, name in enumerate(names)
        ),
        rows=tuple((*of, *_cells(change)) for of, change in sorted(changes.items())),
        total=("Total", "", *_cells(sum(changes.values(), RebuildChange()))),
    )


def _cells(change: RebuildChange) -> tuple[Cell, ...]:
    *counts, before, after = astuple(change)
    return (*counts, *(money(each, is_lower_bound=each is None) for each in (before, after)))
