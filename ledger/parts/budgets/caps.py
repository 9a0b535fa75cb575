"""Pure. A cap: what it limits, which requests it is for, its periods. A budget is a cap that only
warns.

[[cap]]
name = "nightly"             # letters, digits and ._:/-; it stands in the answer that refuses
usd = 20                     # and/or list_value_usd, tokens, requests: each holds
period = "day"               # run, session, day, week, month, or 5h (rolling)
# timezone = "Europe/Berlin" # whose days these are; UTC if absent
# team = "search"            # or key, person, project, model, provider, tag = "NAME=VALUE",
                             #   session, agent, host; none of them: everything
# unpriced = "pass"          # requests whose cost cannot be bounded go on, and count when known
# unreachable = "pass"       # requests go on while the ledger cannot be reached; "refuse"
# warn = [80]                # per cent of a limit
# wait = 10                  # seconds to wait for requests under way; 0 refuses at once

[[budget]]                   # the same with `stops = false`
name = "search"              # any text
usd = 500
period = "month"
# thresholds = [50, 80, 100] # another word for `warn`; 80 and 100 if absent
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple

import msgspec

from ledger.model.errors import WrongCallError
from ledger.model.exchange import Exchange
from ledger.model.money import PICOUSD_PER_USD
from ledger.settings.names import (
    KEY_CHARACTERS_MIN,
    WORDS,
    GroupFacts,
    NameEntry,
    Names,
    Texts,
    fits,
    is_host,
    pattern,
    texts,
)
from ledger.settings.toml_tables import FaultError
from ledger.text.origins import host_of
from ledger.text.period import SPANS, TimeSpan, zone_of

CAPS_MAX = 100
"""Each request is compared with each."""
USD_MAX = 10**6
"""No real cap is larger; sums of amounts stay within 64 bits."""
BUDGET_USD_MAX = 10**9
"""Of a cap that only warns."""
COUNT_MAX = 10**12
"""Of tokens or requests."""
WAIT_SECONDS_MAX = 600
RUN = "run"
"""The name of the cap of `tokentee run --max-usd`, and the period that lasts as long as a
process."""
ROLLING = timedelta(hours=5)
CONDITIONS = (
    *("key", "person", "team", "cost_centre", "project", "model", "provider", "tag", "session"),
    *("agent", "host"),
)
WITHOUT_FIGURE = (204, 205, *range(300, 400))
"""HTTP statuses of answers that can have no figure: they have no content."""
COST_MAX = 10**18 + 1
"""What a cost beyond 64 bits counts: more than any cap allows, so all that is left."""
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,64}")
_COUNT = re.compile(r"([0-9]{1,12})([kKmMgG]?)")
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


class Amounts(NamedTuple):
    """What requests cost, or can cost. None: not known, or without a bound."""

    usd: int | None = None
    """In pico-USD: what is billed."""
    list_value_usd: int | None = None
    """In pico-USD: at list prices, whoever pays."""
    tokens: int | None = None
    """Input and output."""
    requests: int | None = 1


NOTHING = Amounts(0, 0, 0, 0)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum, of known amounts."""
    a, b, c, d = one
    e, f, g, h = other
    return Amounts(
        (a or 0) + (e or 0), (b or 0) + (f or 0), (c or 0) + (g or 0), (d or 0) + (h or 0)
    )


def minus(one: Amounts, other: Amounts) -> Amounts:
    """The difference, of known amounts."""
    a, b, c, d = one
    e, f, g, h = other
    return Amounts(
        (a or 0) - (e or 0), (b or 0) - (f or 0), (c or 0) - (g or 0), (d or 0) - (h or 0)
    )


def fits_in(amounts: Amounts, limits: Amounts) -> bool:
    """Whether no amount exceeds its limit."""
    for amount, limit in zip(amounts, limits, strict=True):
        if limit is not None and (amount or 0) > limit:
            return False
    return True


class Cap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[cap]]`."""

    name: str
    usd: Decimal | int | None = None
    list_value_usd: Decimal | int | None = None
    tokens: int | str | None = None
    requests: int | str | None = None
    period: Literal["run", "session", "day", "week", "month", "5h"]
    timezone: str = "UTC"
    key: Texts = None
    person: Texts = None
    team: Texts = None
    project: Texts = None
    model: Texts = None
    provider: Texts = None
    tag: Texts = None
    session: Texts = None
    agent: Texts = None
    host: Texts = None
    cost_centre: Texts = None
    stops: bool = True
    """False: it only warns, when something of it is spent."""
    unpriced: Literal["refuse", "pass"] = "refuse"
    unreachable: Literal["refuse", "pass"] = "refuse"
    warn: list[int] = msgspec.field(default_factory=lambda: [80])
    thresholds: list[int] | None = None
    wait: int = 10

    def __post_init__(self) -> None:
        """FaultError for an invalid limit, name, zone or condition."""
        if not self.name.strip():
            raise FaultError("name", "empty")
        if self.stops and not _NAME.fullmatch(self.name):
            raise FaultError("name", f"{self.name[:70]!r} is not 1 to 64 of A-Z a-z 0-9 . _ : / -")
        given = [word for word in Amounts._fields if getattr(self, word) is not None]
        if not given:
            raise FaultError("usd", f"give one of {', '.join(Amounts._fields)}")
        for word in given:
            _limit_of(word, getattr(self, word), USD_MAX if self.stops else BUDGET_USD_MAX)
        try:
            zone_of(self.timezone)
        except WrongCallError as error:
            raise FaultError("timezone", str(error)) from None
        for word in CONDITIONS:
            if getattr(self, word) is not None and not all(texts(getattr(self, word)) or ("",)):
                raise FaultError(word, "empty")
        for pair in texts(self.tag):
            if not pair.partition("=")[1]:
                raise FaultError("tag", f"{pair!r} is not NAME=VALUE")
        if not self.stops and self.period not in SPANS:
            raise FaultError("period", f"{self.period}: a budget is for a day, week or month")
        if not self.stops and self.host is not None:
            raise FaultError("host", "a budget has no such condition")
        most = 100 if self.stops else 1_000
        for word, shares in (("warn", self.warn), ("thresholds", self.thresholds)):
            if shares is not None and not (shares and all(0 < each <= most for each in shares)):
                raise FaultError(word, f"write per cents from 1 to {most}: [50, 80]")
        if not 0 <= self.wait <= WAIT_SECONDS_MAX:
            raise FaultError("wait", f"{self.wait} is not seconds from 0 to {WAIT_SECONDS_MAX}")

    @property
    def limits(self) -> Amounts:
        """The limits; None: there is none of this kind."""
        return Amounts(
            *(_limit_of(word, getattr(self, word), BUDGET_USD_MAX) for word in Amounts._fields)
        )

    @property
    def per_cents(self) -> tuple[int, ...]:
        """The shares of a limit from which on it warns."""
        return tuple(sorted(set(self.warn if self.thresholds is None else self.thresholds)))

    @property
    def is_shared(self) -> bool:
        """Whether other processes that record into the ledger spend of it, too."""
        return self.period != RUN

    @property
    def identity(self) -> str:
        """Of its accounts: its name, and what they depend on: all but its limits."""
        digest = hashlib.blake2b(repr(self.definition).encode(), digest_size=4).hexdigest()
        return f"{self.name} {digest}"

    @property
    def definition(self) -> tuple[object, ...]:
        """What its accounts depend on: all but its limits."""
        return (self.period, self.timezone, self.only(), self.host)

    def span(self, at: datetime) -> TimeSpan | None:
        """The period that a moment is in; None: it has no days."""
        if self.period not in SPANS:
            return None
        return SPANS[self.period](at.astimezone(zone_of(self.timezone)))

    def since(self, now: datetime) -> datetime | None:
        """From when on requests count now; None: from the begin of a process or session on."""
        span = self.span(now)
        if self.period == "5h":
            return now - ROLLING
        return None if span is None else span.start.astimezone(UTC)

    def only(self) -> tuple[tuple[str, str], ...]:
        """The conditions, as a scope takes them."""
        return tuple(
            (f"tag:{value.partition('=')[0]}", value.partition("=")[2])
            if word == "tag"
            else ("request_model" if word == "model" and self.stops else word, value)
            for word in CONDITIONS
            if word != "host"
            for value in texts(getattr(self, word))
        )

    def is_for(self, exchange: Exchange, names: Names) -> bool:
        """Whether a request is one of its own."""
        facts: GroupFacts | None = None
        for word in CONDITIONS:
            if (value := getattr(self, word)) is None:
                continue
            wanted = texts(value)
            if word == "key":
                if not any(_is_key(each, exchange, names) for each in wanted):
                    return False
                continue
            if word == "tag":
                pairs = [each.partition("=") for each in wanted]
                if not any(_fits(exchange.tags.get(name), (value,)) for name, _, value in pairs):
                    return False
                continue
            if word == "host":
                if not is_host(value, host_of(exchange.origin)):
                    return False
                continue
            if word in WORDS:
                facts = facts or facts_of(exchange)
                value = names.word_of(word, facts)
            else:
                columns = {"model": "request_model", "session": "session_id"}
                value = getattr(exchange, columns.get(word, word))
            if not _fits(value, wanted):
                return False
        return True


class Budget(Cap, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[budget]]`: a cap that only warns."""

    stops: bool = False
    warn: list[int] = msgspec.field(default_factory=lambda: [80, 100])


def facts_of(exchange: Exchange) -> GroupFacts:
    """What the names file goes by."""
    return GroupFacts(
        key=exchange.key_fingerprint,
        key_hint=exchange.key_hint,
        host=host_of(exchange.origin),
        tags=exchange.tags,
        session=exchange.session_id,
        project=exchange.project,
        agent=exchange.agent,
        day=exchange.opened_at.astimezone(UTC).date(),
    )


def session_of(exchange: Exchange) -> str:
    """The session of a request; those without one share a session a key."""
    return exchange.session_id or session_of_key(exchange.key_fingerprint)


def session_of_key(fingerprint: str | None) -> str:
    """The session that the requests of a key share; no client can name it."""
    return f"\1{fingerprint or ''}"


def count_of(text: str) -> int:
    """`2M` -> 2 000 000. ValueError for what is no number."""
    found = _COUNT.fullmatch(text.strip().replace("_", ""))
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a number such as 200, 500k or 2M")
    return int(found[1]) * _FACTORS[found[2].lower()]


def _limit_of(word: str, value: Decimal | int | str | None, most: int) -> int | None:
    """A limit as a number; in pico-USD if it is money. FaultError if it is none."""
    if value is None:
        return None
    if word in ("tokens", "requests"):
        try:
            count = count_of(value) if isinstance(value, str) else value
        except ValueError as error:
            raise FaultError(word, str(error)) from None
        if not 0 < count <= COUNT_MAX:
            raise FaultError(word, f"{str(value)[:40]} is not a number from 1 to {COUNT_MAX:,}")
        return int(count)
    usd = Decimal(value)
    if not usd.is_finite() or not Decimal("0.000001") <= usd <= most:
        raise FaultError(word, f"{str(usd)[:40]} is not an amount of up to {most:,} USD")
    return int(usd * PICOUSD_PER_USD)


def _fits(value: str | None, wanted: Iterable[str]) -> bool:
    return value is not None and any(pattern(each).match(value) for each in wanted)


def _is_key(wanted: str, exchange: Exchange, names: Names) -> bool:
    """By its name, fingerprint, the fingerprint's beginning, or the key's last characters."""
    fingerprint, hint = exchange.key_fingerprint or "", exchange.key_hint
    if (hint is not None and hint == wanted.lstrip("….")) or _fits(fingerprint, (wanted,)):
        return True
    if len(wanted) >= KEY_CHARACTERS_MIN and fingerprint.startswith(wanted):
        return True
    named: Iterable[NameEntry] = (each for each in names.entries if each.name == wanted)
    return any(fits(each, facts_of(exchange)) for each in named)
