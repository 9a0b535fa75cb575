"""Pure. What each cap has spent and holds, and whether one more request may go upstream.

    ask       a request: it goes (`Held`), waits (`Waiting`), or is refused (`Refusal`)
    settle    it is over: its hold comes back, and what it cost is spent
    freed     after that: the waiting requests that go or are refused now, in their order
    give_up   a waiting request has waited long enough, or its client has left

    spent + held <= limit, for each limit of each cap, if no request costs more than its hold

Processes that record into one ledger share its caps of periods (`leases.py`): of each account this
process uses no more than its share, and what the others use counts beside it.

    asks         what to tell the ledger, and what to ask for; granted: what it answered

A period is that of the moment when a request was seen, as everywhere in the ledger. Each cap has an
account for each period, or session. A request fits if it fits into all of its accounts. One that
fits beside what is spent, and not beside what is held, waits: it gets no less than it would alone.
A later request does not overtake it in an account that it waits for.

A request without a known cost at its end counts its hold, as long as the account lasts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from ledger.caps.caps import NOTHING, ROLLING, Amounts, Cap, session_of
from ledger.caps.leases import NO_CAP_PART, CapPart, Grant, minus, plus
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
ASKS_MAX = 200
"""Accounts in one question to the ledger."""
SHARE_SECONDS = 3
"""How long a request waits at least that fits, and needs a larger share of the ledger."""
_UNITS = ("usd", "list_value_usd")
_BEGIN = itemgetter(0)


@dataclass(slots=True, eq=False)
class Account:
    """One period, or session, of a cap."""

    cap: Cap
    limits: Amounts
    name: str
    """Among those of its cap: the session, or the begin of the period."""
    since: datetime | None
    until: datetime | None
    spent: Amounts = NOTHING
    held: Amounts = NOTHING
    steps: list[tuple[datetime, Amounts]] = field(default_factory=list)
    """Of a rolling period: what was spent up to the end of each step, in order."""
    refused: int = 0
    warned: int = 0
    """The highest per cent that was warned of."""
    share: Amounts | None = None
    """The most that this process may spend and hold of it; None: nobody shares it."""
    ahead: Amounts = NOTHING
    """The slice of the share to keep ahead of requests."""
    low: Amounts = NOTHING
    """Above this, more is asked for in time."""
    others: CapPart = NO_CAP_PART
    """What the ledger has of other processes."""

    def all_spent_at(self, at: datetime) -> Amounts:
        """The same, of all processes."""
        return plus(self.spent_at(at), self.others.spent)

    def used_at(self, at: datetime) -> Amounts:
        """What this process has spent and holds."""
        return plus(self.spent_at(at), self.held)

    def spent_at(self, at: datetime) -> Amounts:
        """What counts for a request of this moment."""
        if not self.steps:
            return self.spent
        steps = self.steps
        over = bisect_right(steps, at - ROLLING - STEP, key=_BEGIN)
        return minus(self.spent, steps[over - 1][1]) if over else self.spent

    def spend(self, at: datetime, amounts: Amounts) -> None:
        """Count what a request of this moment cost."""
        self.spent = plus(self.spent, amounts)
        if self.cap.period != "5h":
            return
        begin = at.astimezone(UTC).replace(second=0, microsecond=0)
        place = bisect_left(self.steps, begin, key=_BEGIN)
        if place == len(self.steps) or self.steps[place][0] != begin:
            before = self.steps[place - 1][1] if place else NOTHING
            self.steps.insert(place, (begin, before))
        for later in range(place, len(self.steps)):
            step, total = self.steps[later]
            self.steps[later] = (step, plus(total, amounts))
        # The last one that is over stays: it has what was spent up to then.
        old = bisect_right(self.steps, begin - ROLLING - SLOW - STEP, key=_BEGIN) - 1
        if old > 0:
            self.steps = self.steps[old:]

    def fits(
        self, hold: Amounts, limits: Amounts, at: datetime, held: Amounts, others: Amounts
    ) -> bool:
        """Whether this fits beside what is spent, and these."""
        columns = zip(limits, hold, self.spent_at(at), held, others, strict=True)
        for limit, more, spent, beside, of_others in columns:
            if limit is not None and more + spent + beside + of_others > limit:  # type: ignore[operator]
                return False
        return True

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
    caps: Mapping[str, Cap] | None = None
    """Those that were in force."""


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
    is_for_share: bool = False
    """It fits, and waits for a larger share alone."""


class Ask(NamedTuple):
    """What to tell the ledger of an account, and to ask for."""

    account: Account
    own: CapPart
    wants: tuple[Amounts, ...]


class Book:
    """The accounts of all caps. Used by one thread."""

    def __init__(
        self, caps: Iterable[Cap] = (), names: Names = NO_NAMES, *, is_shared: bool = False
    ) -> None:
        """`is_shared`: other processes record into the same ledger, or may."""
        self.names = names
        self.is_shared = is_shared
        self.unreachable = ""
        """Why the ledger cannot be asked, if it cannot."""
        self.has_slices = True
        """Whether the slices of the shares last."""
        self.is_low = False
        """A share is nearly used; whoever reads that clears it."""
        self.caps: dict[str, Cap] = {cap.name: cap for cap in caps}
        self.incomplete: set[str] = set()
        """Caps of which it is not known yet what was spent before."""
        self.waiting: dict[Waiting, None] = {}
        """In their order."""
        self.news: list[str] = []
        """Lines for the operator; whoever reads them clears them."""
        self._accounts: dict[tuple[str, str], Account] = {}
        self._changed: set[Account] = set()
        """Since they were told to the ledger."""
        self._contended: set[tuple[str, str]] = set()
        """Keys of accounts of which other processes are short."""
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
        what = "the ledger's answer" if one.is_for_share else "requests under way"
        return self._refusal(one, f"it waited {seconds_text(one.wait_seconds)} for {what}")

    def settle(self, held: Held, cost: Amounts) -> None:
        """A request is over. None: what it cost is not known, and its hold counts."""
        counted = cost
        if None in cost:
            pairs = zip(cost, held.amounts, strict=True)
            counted = Amounts(*(hold if amount is None else amount for amount, hold in pairs))
        accounts: Collection[Account] = held.accounts
        for account in accounts:
            account.held = minus(account.held, held.amounts)
        if held.caps is not self.caps:  # one that was set meanwhile counts it, too
            accounts = {*accounts, *self._accounts_of(held.exchange)}
        for account in accounts:
            account.spend(held.exchange.opened_at, counted)
            self._warn(account, held.exchange.opened_at)
        self._changed.update(accounts)

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
            if old is None or old.definition != cap.definition:
                self._drop(name)
                new.append(cap)
            for account in self._accounts.values():
                if account.cap.name == name and account.cap != cap:
                    account.cap, account.limits = cap, cap.limits
                    if account.share is not None:
                        account.share = NOTHING
                        self._changed.add(account)
        for name in before.keys() - self.caps.keys():
            self._drop(name)
        self.incomplete = {
            *(self.incomplete & self.caps.keys()),
            *(cap.name for cap in new if cap.period != "run"),
        }
        return [cap for cap in self.caps.values() if cap.name in self.incomplete]

    def complete(self, caps: Iterable[Cap], now: datetime) -> None:
        """The ledger has what was spent before: the caps are in force."""
        self.incomplete -= {cap.name for cap in caps}
        for cap in caps:
            if cap.period != "session" and cap.name in self.caps:
                self._changed.add(self._account(self.caps[cap.name], None, now))

    def asks(self, now: datetime) -> list[Ask]:
        """What to tell the ledger, and what to ask for. Until it has answered, what is given back
        is not used any more."""
        wants: dict[Account, list[Waiting]] = {}
        for one in self.waiting:
            for account in one.accounts:
                wants.setdefault(account, []).append(one)
        rolling = (self._accounts.get((name, "5h")) for name in self.caps)
        found: list[Ask] = []
        for account in dict.fromkeys((*wants, *filter(None, rolling), *self._changed)):
            if account.cap.name in self.incomplete:
                continue
            if len(found) == ASKS_MAX:
                break
            self._changed.discard(account)
            if account.share is None or self._accounts.get(_key_of(account)) is not account:
                continue
            of_account = wants.get(account, [])
            # What counts for a request that waits is what counted when it came.
            at = min((now, *(one.exchange.opened_at for one in of_account)))
            used = account.used_at(at)
            is_contended = _key_of(account) in self._contended
            kept = used if is_contended else plus(used, account.ahead)
            columns = zip(used, kept, account.share, strict=True)
            share = Amounts(
                *(amount if most is None else max(amount or 0, min(least or 0, most))
                for amount, least, most in columns)
            )  # fmt: skip
            account.share = _limited(share, account.limits)
            holds = tuple(plus(one.hold, NOTHING) for one in of_account)
            found.append(Ask(account, CapPart(account.spent_at(at), used, share), holds))
        return found

    def granted(self, ask: Ask, found: Grant, others: CapPart) -> None:
        """The ledger has answered."""
        account = ask.account
        account.share = _limited(found.taken, account.limits)
        account.ahead, account.others = found.ahead, others
        half = Amounts(*((each or 0) // 2 for each in found.ahead))
        account.low = _limited(minus(found.taken, half), account.limits)

    def lapse(self) -> None:
        """The slices have ended, and may be of others now: all are asked for anew."""
        for account in self._accounts.values():
            if account.share:
                account.share = NOTHING
                self._changed.add(account)

    def failed(self, asks: Iterable[Ask]) -> None:
        """The ledger has not answered: they are asked again."""
        self._changed.update(ask.account for ask in asks)

    def contend(self, keys: set[tuple[str, str]]) -> None:
        """Other processes are short of these accounts: what is not used of them goes back."""
        changed = [self._accounts.get(key) for key in keys ^ self._contended]
        self._changed.update(filter(None, changed))
        self._contended = keys

    def accounts(self, at: datetime) -> list[Account]:
        """Those of now."""
        return [each for each in list(self._accounts.values()) if _is_of(each, at)]

    # The rules

    def _answer(
        self, exchange: Exchange, hold: Amounts, why: str, ahead: Collection[Account]
    ) -> Held | Waiting | Refusal:
        accounts = self._accounts_of(exchange)
        if any(_key_of(account) not in self._accounts for account in accounts):
            return self._refused(accounts[0], "too many sessions are under caps")
        at = exchange.opened_at
        remarks = []
        is_bounded = None not in hold
        known = hold if is_bounded else plus(hold, NOTHING)
        short: list[Account] = []
        is_for_share = True
        for account in accounts:
            limits = account.limits
            if not is_bounded and any(
                limit is not None and amount is None
                for limit, amount in zip(limits, hold, strict=True)
            ):
                if account.cap.unpriced == "refuse":
                    message = f"its cost has no bound: {why}; the cap has unpriced = 'refuse'"
                    return self._refused(account, message)
                remarks.append(f"cap {account.cap.name}: not bounded: {why}")
            share, held, others = account.share, account.held, account.others
            is_complete = account.cap.name not in self.incomplete
            if share is None:
                if is_complete and account.fits(known, limits, at, held, NOTHING):
                    continue
            # Who fits into the share fits beside all others.
            elif is_complete and self.has_slices and account.fits(known, share, at, held, NOTHING):
                self.is_low |= not account.fits(known, account.low, at, held, NOTHING)
                continue
            if not account.fits(known, limits, at, NOTHING, others.spent):
                return self._refused(account, _full(account, known, at))
            if share is None:
                is_for_share = False
                short.append(account)
            elif not self.unreachable:
                is_for_share &= account.fits(known, limits, at, held, others.used)
                short.append(account)
            elif account.cap.unreachable == "refuse":
                why = f"the ledger cannot be reached: {self.unreachable}"
                return self._refused(account, f"{why}; the cap has unreachable = 'refuse'")
            else:
                remarks.append(f"cap {account.cap.name}: passed: the ledger could not be reached")
        if ahead and not short:
            short = [account for account in accounts if account in ahead]
        if short:
            is_for_share = is_for_share and any(each.share is not None for each in short)
            wait = min(each.cap.wait for each in short)
            if is_for_share:
                wait = max(wait, SHARE_SECONDS)
            one = Waiting(exchange, hold, why, wait, tuple(accounts), is_for_share)
            return one if one.wait_seconds else self._refused(short[0], _full(short[0], known, at))
        for account in accounts:
            account.held = plus(account.held, known)
        self._changed.update(accounts)
        return Held(exchange, known, tuple(accounts), tuple(remarks), self.caps)

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
        name = account_name(cap, session, since)
        found = self._accounts.get((cap.name, name))
        if found is None:
            until = None if span is None else span.end.astimezone(UTC)
            found = Account(cap, cap.limits, name, since, until)
            if self.is_shared and cap.period != "run":
                found.share = NOTHING
            if since is not None:  # a period begins
                self._forget(at)
            if len(self._accounts) < ACCOUNTS_MAX:
                self._accounts[_key_of(found)] = found
        if since is not None:
            self._latest[cap.name] = found
        return found

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
        known, at = plus(one.hold, NOTHING), one.exchange.opened_at
        accounts = self._accounts_of(one.exchange)
        for account in accounts:
            share, held = account.share, account.held
            is_short = not account.fits(known, account.limits, at, held, account.others.used) or (
                share is not None and not account.fits(known, share, at, held, NOTHING)
            )
            if is_short or account.cap.name in self.incomplete:
                return self._refused(account, f"{_full(account, known, at)}; {text}")
        return self._refused(accounts[0] if accounts else None, text)

    def _refused(self, account: Account | None, text: str) -> Refusal:
        if account is None:  # its cap was removed meanwhile
            return Refusal("", f"tokentee: {text}")
        account.refused += 1
        name = account.cap.name
        if account.refused == 1:
            self.news.append(f"the cap {name} refuses requests: {text}")
        return Refusal(name, f"tokentee: refused by the cap {name}: {text}", account)

    def _warn(self, account: Account, at: datetime) -> None:
        spent = account.all_spent_at(at)
        pairs = zip(spent, account.limits, strict=True)
        reached = max(100 * (amount or 0) // limit for amount, limit in pairs if limit)
        for per_cent in sorted(account.cap.warn):
            if account.warned < per_cent <= reached:
                account.warned = per_cent
                self.news.append(
                    f"the cap {account.cap.name}: {per_cent}% reached: "
                    f"{', '.join(_shares(spent, account.limits))} spent"
                )


def account_name(cap: Cap, session: str | None, since: datetime | None) -> str:
    """The name of an account among those of its cap."""
    if session is not None:
        return session
    return since.isoformat() if since is not None else cap.period


def _limited(amounts: Amounts, limits: Amounts) -> Amounts:
    """The amounts of which there is a limit."""
    pairs = zip(amounts, limits, strict=True)
    return Amounts(*(None if limit is None else amount for amount, limit in pairs))


def _key_of(account: Account) -> tuple[str, str]:
    return account.cap.name, account.name


def _is_of(account: Account, at: datetime) -> bool:
    is_over = account.until is not None and account.until <= at
    return not is_over and (account.since is None or account.since <= at)


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
        for amounts in (plus(account.held, minus(account.others.used, account.others.spent)), hold)
    )
    spent = " and ".join(_shares(account.all_spent_at(at), account.limits))
    resets = account.resets_at(at)
    end = (
        f"; resets at {resets:%Y-%m-%d %H:%M} UTC" if resets else f"; for one {account.cap.period}"
    )
    return (
        f"{spent} spent, {held} held by requests under way, this request may cost up to "
        f"{asked}{end}"
    )
