"""Pure. Whether one more request may go upstream beside what each cap has spent and holds.

    ask          a request: it goes (`Held`), waits (`Waiting`), or is refused (`Refusal`)
    freed        the waiting requests that go or are refused now, in their order
    to_reserve   those that fit as far as this process knows, and need what all processes have
    answered     what the table that they share said (`shared.py`)
    settle       a request is over: its hold comes back, and what it cost is spent
    give_up      a waiting request has waited long enough, or its client has left

    spent + held <= limit, for each limit of each cap, if no request costs more than its hold

A period is that of the moment when a request was seen, as everywhere in the ledger. Each cap has an
account for each period, or session. A request fits if it fits into all of its accounts. One that
fits beside what is spent, and not beside what is held, waits: it gets no less than it would alone.
A later request does not overtake it in an account that it waits for.

A request without a known cost at its end counts its hold, as long as the account lasts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ledger.model.exchange import Exchange
from ledger.model.money import money_text
from ledger.parts.budgets.caps import (
    COST_MAX,
    NOTHING,
    ROLLING,
    Amounts,
    Cap,
    fits_in,
    minus,
    plus,
    session_of,
)
from ledger.settings.names import NO_NAMES, Names
from ledger.text.figures import seconds_text

WAITING_MAX = 1_000
"""Requests that wait. Each keeps its body in memory; a further one is refused."""
ACCOUNTS_MAX = 10_000
"""Accounts that are remembered, about 6 MB: sessions have names from clients. What is shared stands
in the table, and those that hold nothing are forgotten first."""
STEP = timedelta(minutes=1)
"""A rolling period forgets what was spent in steps of this, never too early."""
_UNITS = ("usd", "list_value_usd")


class Place(NamedTuple):
    """Where an account stands in the table."""

    cap: str
    account: str


class Change(NamedTuple):
    """What to add to an account."""

    account: "Account"
    spent: Amounts
    held: Amounts
    at: datetime


@dataclass(slots=True, eq=False)
class Account:
    """One period, or session, of a cap: what is known here of what all processes have."""

    cap: Cap
    limits: Amounts
    place: Place
    since: datetime | None
    until: datetime | None
    spent: Amounts = NOTHING
    held: Amounts = NOTHING
    under_way: int = 0
    """Requests of this process that hold something of it."""
    refused: int = 0
    warned: int = 0
    """The highest per cent that was warned of."""

    def could_fit(self, hold: Amounts) -> bool:
        """Whether it fits beside what is spent."""
        return fits_in(plus(self.spent, hold), self.limits)

    def fits(self, hold: Amounts) -> bool:
        """Whether it fits beside what is spent and held."""
        return fits_in(plus(plus(self.spent, self.held), hold), self.limits)


@dataclass(slots=True, eq=False)
class Held:
    """A request that goes upstream."""

    exchange: Exchange
    amounts: Amounts
    """Where it passes without a bound, 0."""
    accounts: tuple[Account, ...]
    remarks: tuple[str, ...] = ()
    caps: Mapping[str, Cap] | None = None
    """Those that were in force."""


@dataclass(slots=True, eq=False)
class Refusal:
    """A request that may not go upstream."""

    cap: str
    message: str


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that goes as soon as it fits."""

    exchange: Exchange
    hold: Amounts
    accounts: tuple[Account, ...]
    remarks: tuple[str, ...]
    wait_seconds: int
    is_late: bool
    """It has waited long enough: it is refused if it does not fit now."""

    @property
    def shared(self) -> tuple[Account, ...]:
        """The accounts that other processes share."""
        return tuple([each for each in self.accounts if each.cap.is_shared])


class Standing(NamedTuple):
    """What the table has of an account."""

    fits: bool
    spent: Amounts
    held: Amounts


class Book:
    """The accounts of all caps. Used by one thread."""

    def __init__(self) -> None:
        self.names = NO_NAMES
        self.caps: dict[str, Cap] = {}
        self.waiting: dict[Waiting, None] = {}
        """In their order."""
        self.news: list[str] = []
        """Lines for the operator; whoever reads them clears them."""
        self.changes: list[Change] = []
        """For the table; whoever reads them clears them."""
        self._reserving: dict[Waiting, None] = {}
        """Those that the table is asked for."""
        self._accounts: dict[Place, Account] = {}
        self._latest: dict[str, Account] = {}
        """Of caps with days, by name: finding the day of a moment takes longer than the rest."""

    # What the edge calls

    def ask(
        self, exchange: Exchange, hold: Amounts, why: str = "", *, waits: bool = True
    ) -> Held | Waiting | Refusal:
        """Whether a request may go upstream; `why`: why it has no bound."""
        accounts = self._accounts_of(exchange)
        known, remarks = plus(hold, NOTHING), []
        if None in hold:
            for account in accounts:
                pairs = zip(account.limits, hold, strict=True)
                if all(limit is None or amount is not None for limit, amount in pairs):
                    continue
                if account.cap.unpriced == "refuse":
                    message = f"its cost has no bound: {why}; the cap has unpriced = 'refuse'"
                    return self._refused(account, message)
                remarks.append(f"cap {account.cap.name}: not bounded: {why}")
        seconds = min((each.cap.wait for each in accounts), default=0) if waits else 0
        one = Waiting(exchange, known, tuple(accounts), tuple(remarks), seconds, not seconds)
        found = self._own_answer(one, {each for other in self.waiting for each in other.accounts})
        if found is None or (isinstance(found, Held) and one.shared):
            if len(self.waiting) >= WAITING_MAX:
                return self._refusal(one, "too many requests wait")
            self.waiting[one] = None
            return one
        if isinstance(found, Held):
            self._hold(one)
        return found

    def freed(self) -> Iterator[tuple[Waiting, Held | Refusal]]:
        """The waiting requests that this process alone can answer now."""
        ahead: set[Account] = set()
        for one in list(self.waiting):
            found = None if one in self._reserving else self._own_answer(one, ahead)
            if found is None or (isinstance(found, Held) and one.shared):
                ahead.update(one.accounts)
                continue
            del self.waiting[one]
            if isinstance(found, Held):
                self._hold(one)
            yield one, found

    def to_reserve(self) -> Sequence[Waiting]:
        """The waiting requests that the table has to answer now. The own caps hold for them."""
        ahead: set[Account] = set()
        for one in self.waiting:
            if one in self._reserving or not one.shared:
                continue
            if isinstance(self._own_answer(one, ahead), Held):
                self._reserving[one] = None
                for account in one.accounts:
                    account.under_way += 1
                    if not account.cap.is_shared:
                        account.held = plus(account.held, one.hold)
            else:
                ahead.update(one.accounts)
        return list(self._reserving)

    def answered(
        self, one: Waiting, answer: Sequence[Standing] | str | None
    ) -> Held | Refusal | None:
        """The table's answer, for each shared account in order, up to the first that does not fit;
        a text: why there is none; None: it waits behind another one. Comes back: None: it goes on
        waiting."""
        del self._reserving[one]
        trouble = answer if isinstance(answer, str) else ""
        standings = () if answer is None or isinstance(answer, str) else answer
        for account, standing in zip(one.shared, standings, strict=False):
            self.noted(account, standing)
        found = None if answer is None else self._verdict(one, standings, trouble)
        if answer is None and one.is_late:
            found = self._refusal(one, "others wait before it")
        if not isinstance(found, Held):
            for account in one.accounts:
                account.under_way -= 1
                if not account.cap.is_shared:
                    account.held = minus(account.held, one.hold)
        if one not in self.waiting:  # its client is gone
            if isinstance(found, Held):
                self.settle(found, NOTHING)
            return None
        if found is not None:
            del self.waiting[one]
        return found

    def noted(self, account: Account, standing: Standing) -> None:
        """Take over what all processes have of an account."""
        account.spent, account.held = standing.spent, standing.held
        self._warn(account)

    def give_up(self, one: Waiting) -> Refusal | None:
        """Refuse a request that has waited; None: the table is asked just now."""
        one.is_late = True
        if one in self._reserving:
            return None
        self.waiting.pop(one, None)
        return self._refusal(one, f"it waited {seconds_text(one.wait_seconds)} for others")

    def settle(self, held: Held, cost: Amounts) -> None:
        """A request is over. None: what it cost is not known, and its hold counts."""
        pairs = zip(cost, held.amounts, strict=True)
        counted = Amounts(
            *(min(COST_MAX, (hold if amount is None else amount) or 0) for amount, hold in pairs)
        )
        at = held.exchange.opened_at
        accounts = list(held.accounts)
        for account in accounts:
            account.under_way -= 1
        if held.caps is not self.caps:  # one that was set meanwhile counts it, too
            accounts += [each for each in self._accounts_of(held.exchange) if each not in accounts]
        for account in accounts:
            hold = held.amounts if account in held.accounts else NOTHING
            if account.cap.is_shared:
                self.changes.append(Change(account, counted, minus(NOTHING, hold), at))
            else:
                account.held = minus(account.held, hold)
                account.spent = plus(account.spent, counted)
                self._warn(account)

    def count(self, exchange: Exchange, cost: Amounts) -> None:
        """Count what was not asked for: a fetched result, a response that the server began."""
        self.settle(Held(exchange, NOTHING, ()), cost)

    def set_caps(self, caps: Iterable[Cap], names: Names) -> None:
        """Put other caps in force, for the requests that come. A cap whose limits alone changed
        keeps its accounts."""
        before, self.caps, self.names = self.caps, {cap.name: cap for cap in caps}, names
        for name, old in before.items():
            cap = self.caps.get(name)
            self._latest.pop(name, None)
            for place, account in list(self._accounts.items()):
                if account.cap.name != name:
                    continue
                if cap is None or cap.definition != old.definition:
                    del self._accounts[place]
                else:
                    account.cap, account.limits = cap, cap.limits

    def current(self, now: datetime) -> list[Account]:
        """The account of each shared cap with periods."""
        shared = (cap for cap in self.caps.values() if cap.is_shared)
        return [self._account(cap, None, now) for cap in shared if cap.period != "session"]

    def accounts(self, at: datetime) -> list[Account]:
        """Those of now."""
        return [
            each
            for each in list(self._accounts.values())
            if (each.until is None or each.until > at) and (each.since is None or each.since <= at)
        ]

    # The rules

    def _own_answer(self, one: Waiting, ahead: set[Account]) -> Held | Refusal | None:
        """What this process's own caps say. None: it waits."""
        short = next((each for each in one.accounts if each in ahead), None)
        for account in one.accounts:
            if account.cap.is_shared:
                continue
            if not account.could_fit(one.hold):
                return self._refused(account, _full(account, one.hold))
            if not account.fits(one.hold):
                short = short or account
        if short is None:
            return Held(one.exchange, one.hold, one.accounts, one.remarks, self.caps)
        if one.is_late and not short.fits(one.hold):
            return self._refused(short, _full(short, one.hold))
        return None

    def _verdict(
        self, one: Waiting, standings: Sequence[Standing], trouble: str
    ) -> Held | Refusal | None:
        remarks = list(one.remarks)
        if trouble:
            for account in one.shared:
                if account.cap.unreachable == "refuse":
                    why = f"the ledger cannot be reached: {trouble}"
                    return self._refused(account, f"{why}; the cap has unreachable = 'refuse'")
                remarks.append(f"cap {account.cap.name}: passed: the ledger could not be reached")
                self.changes.append(Change(account, NOTHING, one.hold, one.exchange.opened_at))
            return Held(one.exchange, one.hold, one.accounts, tuple(remarks), self.caps)
        for account, standing in zip(one.shared, standings, strict=False):
            if not standing.fits:
                if one.is_late or not account.could_fit(one.hold):
                    return self._refused(account, _full(account, one.hold))
                return None
        return Held(one.exchange, one.hold, one.accounts, tuple(remarks), self.caps)

    def _hold(self, one: Waiting) -> None:
        for account in one.accounts:
            account.held = plus(account.held, one.hold)
            account.under_way += 1

    def _accounts_of(self, exchange: Exchange) -> list[Account]:
        return [
            self._account(
                cap,
                session_of(exchange) if cap.period == "session" else None,
                exchange.opened_at,
            )
            for cap in self.caps.values()
            if cap.is_for(exchange, self.names)
        ]

    def _account(self, cap: Cap, session: str | None, at: datetime) -> Account:
        latest = self._latest.get(cap.name)
        if latest and latest.since and latest.until and latest.since <= at < latest.until:
            return latest
        span = cap.span(at)
        since = None if span is None else span.start.astimezone(UTC)
        place = Place(cap.identity, account_name(cap, session, since))
        found = self._accounts.get(place)
        if found is None:
            until = None if span is None else span.end.astimezone(UTC)
            if len(self._accounts) >= ACCOUNTS_MAX:
                # The older half of what is shared and holds nothing: the table has it.
                idle = [
                    place
                    for place, account in self._accounts.items()
                    if account.cap.is_shared and not account.under_way
                ]
                for old in idle[: len(idle) // 2 + 1]:
                    del self._accounts[old]
            found = self._accounts[place] = Account(cap, cap.limits, place, since, until)
        if since is not None:
            self._latest[cap.name] = found
        return found

    def _refusal(self, one: Waiting, text: str) -> Refusal:
        for account in one.accounts:
            if not account.fits(one.hold):
                return self._refused(account, f"{_full(account, one.hold)}; {text}")
        if not one.accounts:  # its cap was removed meanwhile
            return Refusal("", f"tokentee: {text}")
        return self._refused(one.accounts[0], text)

    def _refused(self, account: Account, text: str) -> Refusal:
        account.refused += 1
        name = account.cap.name
        if account.refused == 1:
            self.news.append(f"the cap {name} refuses requests: {text}")
        return Refusal(name, f"tokentee: refused by the cap {name}: {text}")

    def _warn(self, account: Account) -> None:
        pairs = zip(account.spent, account.limits, strict=True)
        reached = max(100 * (amount or 0) // limit for amount, limit in pairs if limit)
        passed = 0
        for per_cent in account.cap.per_cents:
            if account.warned < per_cent <= reached:
                account.warned = per_cent
                passed = per_cent
        if passed:
            self.news.append(
                f"the cap {account.cap.name}: {', '.join(_shares(account))} spent, "
                f"{reached}% (it warns at {passed}%)"
            )


def account_name(cap: Cap, session: str | None, since: datetime | None) -> str:
    """The name of an account among those of its cap."""
    if session is not None:
        return session
    return since.isoformat() if since is not None else cap.period


def step_name(at: datetime) -> str:
    """The name of what was spent of a rolling period in one minute."""
    return f"5h {at.astimezone(UTC).replace(second=0, microsecond=0).isoformat()}"


def oldest_step(at: datetime) -> str:
    """The first minute that counts for a request of this moment."""
    return step_name(at - ROLLING - STEP)


def shown(word: str, amount: int | None) -> str:
    """An amount of this kind."""
    return money_text(amount or 0) if word in _UNITS else f"{amount or 0:,}"


def _shares(account: Account) -> Iterator[str]:
    """`$4.91 of $5.00 (usd)`, for each limit."""
    for word, amount, limit in zip(Amounts._fields, account.spent, account.limits, strict=True):
        if limit is not None:
            yield f"{shown(word, amount)} of {shown(word, limit)} ({word})"


def _full(account: Account, hold: Amounts) -> str:
    """`$4.91 of $5.00 (usd) spent, $0.06 held, up to $0.31 more asked for; resets at ...`."""
    words = [word for word in Amounts._fields if getattr(account.limits, word) is not None]
    held, asked = (
        " and ".join(shown(word, getattr(amounts, word)) for word in words)
        for amounts in (account.held, hold)
    )
    spent, period = " and ".join(_shares(account)), account.cap.period
    end = f"; for one {period}"
    if period == "5h":
        end = "; what was spent counts for 5 h"
    if account.until is not None:
        end = f"; resets at {account.until:%Y-%m-%d %H:%M} UTC"
    return (
        f"{spent} spent, {held} held by requests under way, this request may cost up to "
        f"{asked}{end}"
    )
