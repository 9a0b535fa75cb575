"""Pure. Parses the address of a live page into period and filters, and makes addresses for links.

days=30            whole days, today included; or
since=… until=…    as `report` takes them
only=WORD=VALUE    as often as needed; or model=…, key=…, outcome=… (`FIELDS`), as a form sends them
kind=errors        of a list of requests: what the figure of this name counts (`KINDS`)
min_cost, min_seconds, before    of a list of requests: in USD, in seconds, where the page begins
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from ledger.figures.request_filter import KINDS, NO_FILTER, Filter, filter_of
from ledger.model.errors import LedgerError
from ledger.parts.pages.period import PRESETS, Period, last_days
from ledger.parts.pages.sections import PageRow, Question
from ledger.settings.names import NO_NAMES, Names
from ledger.store.schema.dimensions import DIMENSIONS
from ledger.text import period as moments

DAYS_DEFAULT = 30
DAYS_MAX = 3660
CONDITIONS_MAX = 10
LENGTH_MAX = 512
"""Characters of one value: no name in a ledger is longer."""

FIELDS = (*(row.word for row in DIMENSIONS if row.has_field), "team")
"""Dimensions that a form has a field for; a tag is written NAME=VALUE."""

type Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """A question, and the parts of the address that it was parsed from."""

    question: Question
    time: tuple[tuple[str, str], ...]
    """days, or since and until, as written."""
    filter: Filter = NO_FILTER
    """Of a list of requests."""
    narrowed: tuple[tuple[str, str], ...] = ()
    """kind, min_cost and min_seconds, as written."""

    def address(self, path: str, only: Pairs, more: Pairs = ()) -> str:
        """The same period with these conditions."""
        conditions = [("only", f"{word}={value}") for word, value in only]
        query = urlencode([*self.time, *conditions, *more], errors="surrogatepass")
        return f"{path}?{query}"

    def link(self, row: PageRow | None, kind: str = "page") -> str:
        """A page about one line of a table, its latest requests, or all requests; the figures of a
        dimension as CSV."""
        only = self.question.only
        if row is None and kind in FIELDS:
            return self.address("/report.csv", only, [("by", kind)])
        if row is None:
            return self.address("/requests", only, [("kind", kind)] if kind in KINDS else ())
        if kind == "rows":
            at = [("at", row.last_time)] if row.last_time else []
            (condition,) = row.only
            return self.address("/rows", only, [*at, ("row", "=".join(condition))])
        others = tuple(pair for pair in only if pair[0] != row.word)
        return self.address("/", (*others, *row.only))

    def listed(self, pair: tuple[str, str]) -> str:
        """The list of requests under one more condition, `kind` or `outcome`."""
        return self.address("/requests", self.question.only, [pair])

    def requests(self, before: str = "", path: str = "/requests") -> str:
        """The page of the list that begins there; the newest one by default."""
        more = [*self.narrowed, *([("before", before)] if before else [])]
        return self.address(path, self.question.only, more)

    def chosen(self, path: str) -> Iterable[tuple[str, str, str]]:
        """Word, value and the address without it, of everything that narrows a page."""
        only, narrowed = self.question.only, self.narrowed
        for pair in only:
            rest = [each for each in only if each != pair]
            yield (*pair, self.address(path, rest, narrowed))
        for pair in narrowed:
            rest = [each for each in narrowed if each != pair]
            yield (*pair, self.address(path, only, rest))

    def section(self, name: str) -> str:
        """One part of the page."""
        return self.address(f"/section/{name}", self.question.only)

    def presets(self) -> Iterable[tuple[str, str, bool]]:
        """Name, address and whether it is the current one."""
        for name, time in PRESETS:
            yield name, replace(self, time=time).address("/", self.question.only), time == self.time

    def day(self, name: str) -> str:
        """The day of `since` or `until`, `YYYY-MM-DD`; empty if the address does not have it."""
        period = self.question.period
        at = {"since": period.since, "until": period.until}[name]
        if at is None or name not in dict(self.time):
            return ""
        return f"{period.local(at):%Y-%m-%d}"


def parse(pairs: Pairs, *, now: datetime, names: Names = NO_NAMES) -> PageQuestion:
    """The question of an address. LedgerError names the invalid part."""
    given = dict(pairs)
    conditions = []
    for name, text in pairs:
        value = text.strip()[:LENGTH_MAX]
        if name == "only":
            conditions.append(condition_of(text))
        elif name == "tag" and value:
            word, _, rest = value.partition("=")
            conditions.append((f"tag:{word.strip()}", rest.strip()))
        elif name in FIELDS and value:
            conditions.append((name, value))
    if len(conditions) > CONDITIONS_MAX:
        raise LedgerError(f"{len(conditions)} conditions; at most {CONDITIONS_MAX}")
    since, until = given.get("since", "").strip(), given.get("until", "").strip()
    time: list[tuple[str, str]] = []
    if since or until:
        time += [(name, text) for name, text in (("since", since), ("until", until)) if text]
        period = Period(
            since=moments.moment(since, now) if since else None,
            until=moments.moment(until, now) if until else None,
            now=now,
        )
        if period.since is not None and period.since >= period.end:
            raise LedgerError(f"the period ends at {until or 'now'}, before it begins at {since}")
    else:
        days = given.get("days", str(DAYS_DEFAULT))
        is_number = days.isascii() and days.isdigit() and len(days) < 9
        if not is_number or not 1 <= int(days) <= DAYS_MAX:
            raise LedgerError(f"not a number of days: {days[:20]!r}; write 1 to {DAYS_MAX}")
        time.append(("days", str(int(days))))
        period = last_days(int(days), now)
    narrowed = tuple(
        (name, value.strip()[:LENGTH_MAX])
        for name, value in pairs
        if name in ("kind", "min_cost", "min_seconds") and value.strip()
    )
    return PageQuestion(
        question=Question(period=period, only=tuple(conditions), names=names),
        time=tuple(time),
        filter=filter_of(
            [value for name, value in narrowed if name == "kind"],
            min_cost=dict(narrowed).get("min_cost"),
            min_seconds=dict(narrowed).get("min_seconds"),
            before=given.get("before", "")[:LENGTH_MAX] or None,
        ),
        narrowed=narrowed,
    )


def condition_of(text: str) -> tuple[str, str]:
    """`model=gpt-5` as word and value."""
    word, separator, value = text.partition("=")
    if not separator or not word or len(text) > LENGTH_MAX:
        raise LedgerError(f"not a condition: {text[:60]!r}; write only=model=gpt-5")
    return word, value
