"""Edge (the file of lifetimes). What providers document of their prompt caches: `caches.toml`,
dated, with its pages."""

import tomllib
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from ledger.model.segments import DAY_ASKED, HOUR_ASKED

CACHES_FILE = Path(__file__).with_name("caches.toml")
MODEL_NAMES_MAX = 4096
"""Names of models come from clients and upstreams."""


class Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the prompts of some models are cached; the fields are explained in the file."""

    models: list[str]
    since: date | None = msgspec.field(default=None, name="from")
    tokens_min: int
    step: int = 128
    minutes: int = 60
    breakpoints: bool = False
    look_back: int = 1
    ends: bool = False
    pages: list[str]
    read: date

    @property
    def tolerance(self) -> int:
        """Tokens that a provider may count less than were cached: it counts in steps, and may leave
        out the step that a message's end falls into."""
        return 0 if self.breakpoints else 2 * (self.step - 1)

    def lifetime(self, asked: int) -> timedelta:
        """How long a prefix stays, since its last use, where so long was asked for
        (`Segments.lifetime`)."""
        longest = HOUR_ASKED if self.breakpoints else DAY_ASKED
        if asked < longest:
            return timedelta(minutes=self.minutes)
        return timedelta(hours=1 if self.breakpoints else 24)


@cache
def table() -> tuple[Cache, ...]:
    """The rows of the file."""
    rows = tomllib.loads(CACHES_FILE.read_text())["cache"]
    return tuple(msgspec.convert(rows, list[Cache]))


def cache_of(dialect: str, model: str | None, at: datetime) -> Cache:
    """The cache that applied to a request. In Anthropic's wire format, a model without a row has
    Anthropic's."""
    name = (model or "").lower().replace(".", "-")
    found = _cached(name, at.date())
    if dialect.startswith("anthropic") and found is table()[-1]:
        found = _cached("claude", at.date())
    return found


@lru_cache(maxsize=MODEL_NAMES_MAX)
def _cached(name: str, day: date) -> Cache:
    return next(
        row
        for row in table()
        if (row.since is None or row.since <= day)
        and any(fnmatchcase(name, glob) for glob in row.models)
    )
