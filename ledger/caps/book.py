"""Pure. What each cap has spent and holds, and whether one more request may go upstream.

    ask       a request: it goes (`Held`), waits (`Waiting`), or is refused (`Refusal`)
    settle    it is over: its hold comes back, and what it cost is spent
    freed     after that: the waiting requests that go or are refused now, in their order
    give_up   a waiting request has waited long enough, or its client has left

    spent + held <= limit, for each limit of each cap, if no request costs more than its hold

A period is that of the moment when a request was seen, as everywhere in the ledger. Each cap has an
account for each period, or session. A request fits if it fits into all of its accounts. One that
fits beside what is spent, and not beside what is held, waits: it gets no less than it would alone.
A later request does not overtake it in an account that it waits for.

A request without a known cost at its end counts its hold, as long as the account lasts.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ledger.caps.caps import NOTHING, ROLLING, Amounts, Cap, session_of
from ledger.model.exchange import Exchange
from ledger.model.money import money_text
from ledger.settings.names import NO_NAMES, Names
from ledger.text.figures import seconds_text

WAITING_MAX = 1_000
"""Requests that wait. Each keeps its body in memory; a further one is refused."""
ACCOUNTS_MAX = 100_000
"""Of sessions, whose names come from clients, about 60 MB. Nothing spent is forgotten: a request of
a further session is refused."""
STEP = timedelta(minutes=1)
"""A rolling period forgets what was spent in steps of this, never too early."""
SLOW = timedelta(hours=1)
"""Spending is kept for that much longer, for a request that took so long to arrive."""
_UNITS = ("usd", "list_value_usd")


class Prior(NamedTuple):
    """What was spent before this process began, or before a cap was set."""

    cap: str
    session: str | None
    """Of caps for sessions."""
    at: datetime
    amounts: Amounts


@dataclass(slots=True, eq=False)
class Account:
    """One period, or session, of a cap."""

    cap: Cap
    limits: Amounts
    session: str | None
    since: datetime | None
    until: datetime | None
    spent: Amounts = NOTHING
    held: Amounts = NOTHING
    steps: deque[tuple[datetime, Amounts]] = field(default_factory=deque)
    """Of a rolling period: what was spent in each step, in order."""
    refused: int = 0
    warned: int = 0
    """The highest per cent that was warned of."""

    def spent_at(self, at: datetime) -> Amounts:
        """What counts for a request of this moment."""
        if self.cap.period != "5h":
            return self.spent
        total = NOTHING
        for begin, amounts in tuple(self.steps):
            if begin + STEP > at - ROLLING:
                total = plus(total, amounts)
        return total

    def spend(self, at: datetime, amounts: Amounts) -> None:
        """Count what a request of this moment cost."""
        self.spent = plus(self.spent, amounts)
        if self.cap.period != "5h":
            return
        begin = at.astimezone(UTC).replace(second=0, microsecond=0)
        while self.steps and self.steps[0][0] + STEP <= begin - ROLLING - SLOW:
            self.steps.popleft()
        place = len(self.steps)
        while place and self.steps[place - 1][0] > begin:
            place -= 1
        if place and self.steps[place - 1][0] == begin:
            self.steps[place - 1] = (begin, plus(self.steps[place - 1][1], amounts))
        else:
            self.steps.insert(place, (begin, amounts))

    def resets_at(self, at: datetime) -> datetime | None:
        """When something of it is free again; None: not before its process or session ends."""
        if self.cap.period == "5h":
            steps = (begin + STEP + ROLLING for begin, _ in self.steps)
            return next((each for each in steps if each > at), None)
        return self.until


@dataclass(slots=True, eq=False)
class Held:
    """A request that goes upstream."""

    exchange: Exchange
    amounts: Amounts
    """None is 0: it passes without a bound."""
    accounts: tuple[Account, ...]
    remarks: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Refusal:
    """A request that may not go upstream."""

    cap: str
    message: str
    account: Account | None = None


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that fits as soon as others have settled."""

    exchange: Exchange
    hold: Amounts
    why: str
    wait_seconds: int
    accounts: tuple[Account, ...] = ()
    """Those that it is for; no later request overtakes it there."""


class Book:
    """The accounts of all caps. Used by one thread."""

    def __init__(self, caps: Iterable[Cap] = (), names: Names = NO_NAMES) -> None:
        self.names = names
        self.caps: dict[str, Cap] = {cap.name: cap for cap in caps}
        self.incomplete: set[str] = set()
        """Caps of which it is not known yet what was spent before."""
        self.waiting: dict[Waiting, None] = {}
        """In their order."""
        self.news: list[str] = []
        """Lines for the operator; whoever reads them clears them."""
        self._accounts: dict[tuple[str, object], Account] = {}
        self._latest: dict[str, Account] = {}
        """Of caps with days, by name: finding the day of a moment takes longer than the rest."""

    # What the edge calls

    def ask(self, exchange: Exchange, hold: Amounts, why: str = "") -> Held | Waiting | Refusal:
        """Whether a request may go upstream; `why`: why it has no bound."""
        ahead = {account for one in self.waiting for account in one.accounts}
        found = self._answer(exchange, hold, why, ahead)
        if isinstance(found, Waiting):
            if len(self.waiting) >= WAITING_MAX:
                return self._refusal(found, "too many requests wait")
            self.waiting[found] = None
        return found

    def freed(self) -> Iterator[tuple[Waiting, Held | Refusal]]:
        """The waiting requests that do not wait any more."""
        ahead: set[Account] = set()
        for one in list(self.waiting):
            found = self._answer(one.exchange, one.hold, one.why, ahead)
            if isinstance(found, Waiting):
                one.accounts = found.accounts
                ahead.update(one.accounts)
            else:
                del self.waiting[one]
                yield one, found

    def give_up(self, one: Waiting) -> Refusal:
        """Refuse a request that has waited."""
        self.waiting.pop(one, None)
        return self._refusal(
            one, f"it waited {seconds_text(one.wait_seconds)} for requests under way"
        )

    def settle(self, held: Held, cost: Amounts) -> None:
        """A request is over. None: what it cost is not known, and its hold counts."""
        counted = Amounts(
            *(
                amount if known is None else known
                for known, amount in zip(cost, held.amounts, strict=True)
            )
        )
        for account in held.accounts:
            account.held = minus(account.held, held.amounts)
        # A cap that was set meanwhile counts it, too.
        for account in {*held.accounts, *self._accounts_of(held.exchange)}:
            account.spend(held.exchange.opened_at, counted)
            self._warn(account, held.exchange.opened_at)

    def count(self, exchange: Exchange, cost: Amounts) -> None:
        """Count what was not asked for: a fetched result, a response that the server began."""
        self.settle(Held(exchange, NOTHING, ()), cost)

    def set_caps(self, caps: Iterable[Cap], names: Names) -> list[Cap]:
        """Put other caps in force, for the requests that come; those of which it has to be read
        what was spent before. A cap whose limits alone changed keeps its accounts."""
        before, self.caps, self.names = self.caps, {cap.name: cap for cap in caps}, names
        new = []
        for name, cap in self.caps.items():
            old = before.get(name)
            if old is None or _without_limits(old) != _without_limits(cap):
                self._drop(name)
                new.append(cap)
            for account in self._accounts.values():
                if account.cap.name == name:
                    account.cap, account.limits = cap, cap.limits
        for name in before.keys() - self.caps.keys():
            self._drop(name)
        self.incomplete = {
            *(self.incomplete & self.caps.keys()),
            *(cap.name for cap in new if cap.period != "run"),
        }
        return [cap for cap in self.caps.values() if cap.name in self.incomplete]

    def complete(self, caps: Iterable[Cap], prior: Iterable[Prior]) -> None:
        """What was spent before is known: the caps are in force."""
        names = {cap.name for cap in caps} & self.caps.keys()
        for each in prior:
            cap = self.caps.get(each.cap)
            if cap is not None and each.cap in names and each.cap in self.incomplete:
                self._account(cap, each.session, each.at).spend(each.at, each.amounts)
        self.incomplete -= names

    def accounts(self, at: datetime) -> list[Account]:
        """Those of now."""
        return [each for each in list(self._accounts.values()) if _is_of(each, at)]

    # The rules

    def _answer(
        self, exchange: Exchange, hold: Amounts, why: str, ahead: Collection[Account]
    ) -> Held | Waiting | Refusal:
        accounts = self._accounts_of(exchange)
        at = exchange.opened_at
        remarks = []
        known = Amounts(*(amount or 0 for amount in hold))
        short: list[Account] = []
        for account in accounts:
            limits = account.limits
            if None in hold and any(
                limit is not None and amount is None
                for limit, amount in zip(limits, hold, strict=True)
            ):
                if account.cap.unpriced == "refuse":
                    message = f"its cost has no bound: {why}; the cap has unpriced = 'refuse'"
                    return self._refused(account, message)
                remarks.append(f"cap {account.cap.name}: not bounded: {why}")
            asked = plus(account.spent_at(at), known)
            if not _fits(asked, limits):
                return self._refused(account, _full(account, known, at))
            if account.cap.name in self.incomplete or not _fits(plus(asked, account.held), limits):
                short.append(account)
        if ahead and not short:
            short = [account for account in accounts if account in ahead]
        if short:
            wait = min(each.cap.wait for each in short)
            one = Waiting(exchange, hold, why, wait, tuple(accounts))
            return one if one.wait_seconds else self._refused(short[0], _full(short[0], known, at))
        if self._is_crowded(accounts):
            return self._refused(accounts[0], "too many sessions are under caps")
        for account in accounts:
            self._accounts.setdefault(_key_of(account), account)
            account.held = plus(account.held, known)
        return Held(exchange, known, tuple(accounts), tuple(remarks))

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
        if (
            latest is not None
            and latest.since
            and latest.until
            and latest.since <= at < latest.until
        ):
            return latest
        span = cap.span(at)
        since = None if span is None else span.start.astimezone(UTC)
        found = self._accounts.get((cap.name, session or since))
        if found is None:
            until = None if span is None else span.end.astimezone(UTC)
            found = Account(cap, cap.limits, session, since, until)
            if since is not None:  # a period begins
                self._forget(at)
            if len(self._accounts) < ACCOUNTS_MAX:
                self._accounts[_key_of(found)] = found
        if since is not None:
            self._latest[cap.name] = found
        return found

    def _is_crowded(self, accounts: list[Account]) -> bool:
        return any(_key_of(account) not in self._accounts for account in accounts)

    def _forget(self, at: datetime) -> None:
        """Days that are over for long, and hold nothing."""
        old = [
            key
            for key, account in self._accounts.items()
            if account.until is not None and account.until + ROLLING < at
            if account.held == NOTHING
        ]
        for key in old:
            self._latest.pop(key[0], None)
            del self._accounts[key]

    def _drop(self, name: str) -> None:
        self._latest.pop(name, None)
        for key in [key for key in self._accounts if key[0] == name]:
            del self._accounts[key]

    def _refusal(self, one: Waiting, text: str) -> Refusal:
        for account in self._accounts_of(one.exchange):
            known = Amounts(*(amount or 0 for amount in one.hold))
            spent = account.spent_at(one.exchange.opened_at)
            is_short = not _fits(plus(plus(spent, account.held), known), account.limits)
            if is_short or account.cap.name in self.incomplete:
                full = _full(account, known, one.exchange.opened_at)
                return self._refused(account, f"{full}; {text}")
        found = self._accounts_of(one.exchange)
        return self._refused(found[0] if found else None, text)

    def _refused(self, account: Account | None, text: str) -> Refusal:
        if account is None:  # its cap was removed meanwhile
            return Refusal("", f"tokentee: {text}")
        account.refused += 1
        name = account.cap.name
        if account.refused == 1:
            self.news.append(f"the cap {name} refuses requests: {text}")
        return Refusal(name, f"tokentee: refused by the cap {name}: {text}", account)

    def _warn(self, account: Account, at: datetime) -> None:
        spent = account.spent_at(at)
        for per_cent in sorted(account.cap.warn):
            if per_cent > account.warned and any(
                limit is not None and (amount or 0) * 100 >= limit * per_cent
                for amount, limit in zip(spent, account.limits, strict=True)
            ):
                account.warned = per_cent
                self.news.append(
                    f"the cap {account.cap.name}: {per_cent}% reached: "
                    f"{', '.join(_shares(spent, account.limits))} spent"
                )


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


def _fits(amounts: Amounts, limits: Amounts) -> bool:
    for amount, limit in zip(amounts, limits, strict=True):
        if limit is not None and amount is not None and amount > limit:
            return False
    return True


def _key_of(account: Account) -> tuple[str, object]:
    return account.cap.name, account.session or account.since


def _is_of(account: Account, at: datetime) -> bool:
    is_over = account.until is not None and account.until <= at
    return not is_over and (account.since is None or account.since <= at)


def _without_limits(cap: Cap) -> tuple[object, ...]:
    """What its accounts depend on."""
    return (cap.period, cap.timezone, cap.only(), cap.host)


def _shown(word: str, amount: int | None) -> str:
    return money_text(amount or 0) if word in _UNITS else f"{amount or 0:,}"


def _shares(amounts: Amounts, limits: Amounts) -> Iterator[str]:
    """`$4.91 of $5.00 (usd)`, for each limit."""
    for word, amount, limit in zip(Amounts._fields, amounts, limits, strict=True):
        if limit is not None:
            yield f"{_shown(word, amount)} of {_shown(word, limit)} ({word})"


def _full(account: Account, hold: Amounts, at: datetime) -> str:
    """`$4.91 of $5.00 (usd) spent, $0.06 held, up to $0.31 more asked for; resets at ...`."""
    words = [word for word in Amounts._fields if getattr(account.limits, word) is not None]
    held, asked = (
        " and ".join(_shown(word, getattr(amounts, word)) for word in words)
        for amounts in (account.held, hold)
    )
    spent = " and ".join(_shares(account.spent_at(at), account.limits))
    resets = account.resets_at(at)
    end = (
        f"; resets at {resets:%Y-%m-%d %H:%M} UTC" if resets else f"; for one {account.cap.period}"
    )
    return f"{spent} spent, {held} held by requests under way, up to {asked} asked for{end}"
