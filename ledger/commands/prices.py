"""Wiring. `tokentee prices`: the prices of a model, the check of a price file, newer price lists
when asked for; and `tokentee reprice`: price booked readings again."""

import hashlib
import ipaddress
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from ledger.commands.options import (
    LedgerOption,
    NamesOption,
    Only,
    Prices,
    Since,
    TimezoneOption,
    Until,
    scope_of,
)
from ledger.commands.output import print_line, print_table
from ledger.model.errors import LedgerError
from ledger.text.figures import seconds_text
from ledger.text.printable import printable

if TYPE_CHECKING:
    from ledger.pricing.price_lines import Sheet

prices = typer.Typer(
    no_args_is_help=True,
    help="Show the prices of a model; check a price file; read newer price lists.",
)


@prices.command("check")
def check_prices(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A price file (TOML).")],
) -> None:
    """List the problems of a price file; exit code 1 if there are any."""
    from ledger.pricing import overrides
    from ledger.text.figures import counted

    found, problems = overrides.check(file)
    for problem in problems:
        print_line(f"{file}: {problem}")
    if problems:
        raise typer.Exit(1)
    count = f"{counted(len(found.entries), 'price')}, {counted(len(found.gateways), 'gateway')}"
    if found.litellm:
        count += f", {counted(len(found.litellm.models), 'model')} of LiteLLM's"
    typer.echo(f"{file}: {count}; sha256:{found.digest}")


@prices.command("show")
def show_prices(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model as the wire names it.")],
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="The host it is asked at.")] = "",
    provider: Annotated[
        str, typer.Option(metavar="NAME", help="The provider, as the ledger names it.")
    ] = "",
    tier: Annotated[
        str | None, typer.Option(metavar="TIER", help="The service tier of the answer.")
    ] = None,
    at: Annotated[str, typer.Option(metavar="WHEN", help="The moment of the request.")] = "now",
    prices: Prices = None,
) -> None:
    """Show the price of each line of a model.

    At a host and a moment, with the source of each price.
    """
    from ledger.model.providers import VENDOR
    from ledger.pricing.price_lists import PriceQuestion
    from ledger.pricing.prices import PriceBook
    from ledger.reports.explain import sheet_table, sheet_title
    from ledger.text import period

    moment = period.moment(at, datetime.now(UTC))
    book = PriceBook.load(prices)

    def look_up(name: str) -> "Sheet":
        question = PriceQuestion(
            origin=f"https://{host}" if host else "",
            provider=provider or host or VENDOR,
            response_model=name,
        )
        return book.look_up(question, tier=tier, at=moment)

    sheet = look_up(model)
    if not sheet.rates and sheet.rest is None:
        priced = (name for name in near_models(model) if look_up(name).rates)
        near = ", ".join(islice(priced, NEAR_SHOWN_MAX))
        print_line(f"{sheet.absent}{f'; did you mean {near}?' if near else ''}")
        raise typer.Exit(1)
    if sheet.partial:
        for reason in sheet.partial:
            print_line(reason)
        raise typer.Exit(1)
    print_table(sheet_table(sheet), sheet_title(sheet, model, moment))


def near_models(model: str) -> list[str]:
    """Names of the price lists that are like this one: the same but for dashes and dots first, then
    those that have it in them, the newest first, then those with a slip."""
    from ledger.pricing import published

    asked = _letters(model)
    names = {
        each.id for listed in published.installed().providers.values() for each in listed.models
    }
    ordered = sorted(names, reverse=True)
    same = [name for name in ordered if asked == _letters(name)]
    within = [name for name in ordered if asked and asked in _letters(name)]
    slips = get_close_matches(model.lower(), ordered, NEAR_TRIED_MAX)
    return list(dict.fromkeys([*same, *within, *slips]))[:NEAR_TRIED_MAX]


def _letters(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


def reprice(
    *,
    since: Since = None,
    until: Until = None,
    only: Only = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, stored with every added charge.")
    ] = "repriced",
    unpriced: Annotated[
        bool, typer.Option("--unpriced", help="Only requests with a line without a price.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Also where a booked price would be lost.")
    ] = False,
    prices: Prices = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Price booked usage again. Superseding charges are added; the old ones stay.

    Exit code 1: a line would lose its price, so nothing was written.
    """
    from ledger.figures.queries import existing_ledger
    from ledger.maintenance import reprice as repricing
    from ledger.pricing.prices import PriceBook
    from ledger.reports.explain import difference
    from ledger.text.figures import counted

    book = PriceBook.load(prices)
    scope, now = scope_of(since, until, only, names, timezone), datetime.now(UTC)
    with existing_ledger(ledger) as engine:
        changes = repricing.changes(engine, book, scope, now=now, only_unpriced=unpriced)
        if not changes:
            print_line("nothing changes: every line has the price it would get today")
            return
        print_table(difference(changes))
        lost = sum(change.lost_prices for change in changes.values())
        if lost:
            print_line(
                f"{counted(lost, 'line')} would lose the booked price: name the price file with "
                "--prices, or --accept that"
            )
        if dry_run or (lost and not accept):
            print_line("nothing was written")
            raise typer.Exit(0 if dry_run else 1)
        added = repricing.apply(engine, book, scope, now=now, reason=reason, only_unpriced=unpriced)
        print_line(
            f"added: {counted(added, 'charge')}; the ones they replace stay in the table charges"
        )


NEAR_SHOWN_MAX = 3
NEAR_TRIED_MAX = 40
"""Names that are like the one without a price; those with a price are shown."""
FETCH_SECONDS_MAX = 120
FETCH_CHUNK_BYTES = 256 * 1024
CHANGES_SHOWN_MAX = 20
"""Changes of each kind that are shown; `--all` shows all."""
PRICE_RATIO_MAX = 2
"""A price that rises or falls by more than this factor needs `--accept`."""

type Figures = Mapping[str, Mapping[str, object]]


class PriceChange(NamedTuple):
    """One price of one model; None: not listed."""

    model: str
    line: str
    before: object
    after: object

    @property
    def is_large(self) -> bool:
        """Whether a price more than doubles or halves: the base, or that of the highest step."""
        old, new = (
            each if isinstance(each, tuple) else (each,) for each in (self.before, self.after)
        )
        highest = (each[-1][1] if each[1:] else each[0] for each in (old, new))
        return any(
            max(pair) > PRICE_RATIO_MAX * min(pair)
            for pair in ((old[0], new[0]), tuple(highest))
            if all(isinstance(each, int | Decimal) for each in pair)
        )


@prices.command("update")
def update(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|URL", help="A price list; default: genai-prices' published data."
        ),
    ] = None,
    *,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Refuse a list with another digest.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Also prices that more than double or halve.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every change.")] = False,
    prices: Prices = None,
    ledger: LedgerOption = None,
) -> None:
    """Read a newer price list, as data, never code.

    It is genai-prices' or LiteLLM's.

    It is in force for requests from now on, and from the next start of a proxy. What is booked
    stays as it is; `tokentee reprice --unpriced` prices what had no price.
    """
    from genai_prices.update_prices import DEFAULT_UPDATE_URL

    from ledger.pricing import published, snapshots
    from ledger.pricing.snapshots import LIST_BYTES_MAX, Snapshots
    from ledger.settings import small_files

    name = source or DEFAULT_UPDATE_URL
    if "://" in name:
        data = _fetched(name)
    else:
        data = small_files.read_bytes(Path(name), "price list", bytes_max=LIST_BYTES_MAX)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and sha256.strip().lower() != digest:
        raise LedgerError(f"{name} has the digest {digest}, not {sha256[:80]}; nothing changes")
    found, now = snapshots.read(data, name), snapshots.now_in_seconds()
    kept = Snapshots()
    current = kept.newest()
    if current is not None and current.digest == digest:
        print_line(f"nothing changes: {current.source} is in force")
        return
    before: Figures = {}
    if current is not None and current.kind == found.kind:
        before = current.figures(now)
    elif found.kind == "genai-prices":
        before = published.installed().figures(now)
    changes = list(_changes(before, found.figures(now)))
    large = _show(changes, show_all=show_all)
    print_line(_would_price(ledger, prices, kept, found, now))
    if large and not accept:
        print_line(
            f"{large} prices more than double or halve: check them, then --accept; "
            "the old prices stay in force"
        )
        raise typer.Exit(1)
    if dry_run:
        print_line("nothing was written")
        return
    kept.install(found, source=name, now=now)
    print_line(f"in force from {now:%Y-%m-%d %H:%M:%S} UTC: {found.source}")


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTPS alone; any other is an HTTPError."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        if not str(arguments[-1]).startswith("https://"):
            return None
        return super().redirect_request(*arguments)


def _fetched(url: str) -> bytes:
    """The body at a URL of HTTPS, or of HTTP on this machine, bounded in size and time; LedgerError
    in one line."""
    from ledger.pricing.snapshots import LIST_BYTES_MAX

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_here = host == "localhost" or (
            host.replace(".", "").isdigit() and ipaddress.ip_address(host).is_loopback
        )
    except ValueError:
        raise LedgerError(f"{url[:200]!r} is not a URL") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise LedgerError(f"{url[:200]} is not an https:// URL; download it, and name the file")
    data = bytearray()
    deadline = time.monotonic() + FETCH_SECONDS_MAX
    try:
        opener = urllib.request.build_opener(_OnlyHttps)
        with opener.open(url, timeout=30) as answer:
            while chunk := answer.read1(FETCH_CHUNK_BYTES):
                data += chunk
                if len(data) > LIST_BYTES_MAX:
                    raise LedgerError(f"{url} is larger than {LIST_BYTES_MAX >> 20} MiB")
                if time.monotonic() > deadline:
                    raise LedgerError(f"{url} takes longer than {seconds_text(FETCH_SECONDS_MAX)}")
            if answer.length:
                raise LedgerError(f"cannot read {url}: it ended {answer.length} bytes early")
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise LedgerError(
            f"cannot read {url}: {reason}; the old prices stay in force, and a machine without "
            "network takes a FILE"
        ) from None
    return bytes(data)


def _changes(before: Figures, after: Figures) -> Iterator[PriceChange]:
    for model in sorted(before.keys() | after.keys()):
        old, new = before.get(model, {}), after.get(model, {})
        for line in sorted(old.keys() | new.keys()):
            if old.get(line) != new.get(line):
                yield PriceChange(model, line, old.get(line), new.get(line))


def _show(changes: list[PriceChange], *, show_all: bool) -> int:
    """Print the changes by kind; how many are large."""
    kinds = {
        "new": [each for each in changes if each.before is None],
        "changed": [each for each in changes if each.before is not None and each.after is not None],
        "removed": [each for each in changes if each.after is None],
    }
    large = [each for each in kinds["changed"] if each.is_large]
    for name, found in kinds.items():
        typer.echo(f"{name}: {len(found)} prices of {len({each.model for each in found})} models")
        first = sorted(found, key=lambda each: not each.is_large)
        for each in islice(first, None if show_all else CHANGES_SHOWN_MAX):
            mark = "  !" if name == "changed" and each.is_large else ""
            figures = f"{_text(each.before)} -> {_text(each.after)}{mark}"
            typer.echo(printable(f"  {each.model[:200]} {each.line}: {figures}"))
        if not show_all and len(found) > CHANGES_SHOWN_MAX:
            typer.echo(f"  and {len(found) - CHANGES_SHOWN_MAX} more (--all)")
    return len(large)


def _text(price: object) -> str:
    if isinstance(price, tuple):
        base, *steps = price
        return ", ".join([str(base), *(f"{each} above {start}" for start, each in steps)])
    return "-" if price is None else str(price)


def _would_price(
    ledger: str | None, prices: str | None, kept: Any, found: Any, now: datetime
) -> str:
    """How many requests without a price the list has one for."""
    from ledger.figures.queries import existing_ledger
    from ledger.maintenance.reprice import unpriced_questions
    from ledger.pricing import overrides
    from ledger.pricing.prices import PriceBook

    own = overrides.load(prices)
    old, new = PriceBook(own, kept), PriceBook(own, kept.with_list(found, now))
    try:
        with existing_ledger(ledger) as engine:
            groups = unpriced_questions(engine)
    except LedgerError as error:
        return f"unpriced requests were not counted: {error}"
    total = priced = 0
    for question, tier, at, count in groups:
        total += count
        before, after = (each.look_up(question, tier=tier, at=at) for each in (old, new))
        if after.rates.keys() - before.rates.keys():
            priced += count
    return (
        f"unpriced requests: {total}; with a price in this list: {priced} "
        "(tokentee reprice --unpriced)"
    )
