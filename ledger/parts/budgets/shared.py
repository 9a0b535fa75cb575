"""Database. What all processes that record into one ledger have of its caps: one small table.

    reserve   UPDATE ... SET held = held + :hold WHERE spent + held + :hold <= limit
    settle    the same without the condition: what was held comes back, what it cost is spent

Each account has a row for all processes, and one for each process with its own part. A statement
writes the own part as it is to be, and moves the whole by the difference: so one that is repeated,
because its answer was lost, changes nothing. A process that is dead keeps what it spent, and what
it held counts as spent, as its open rows do in the ledger; should it go on after all, its next
statement puts that right.

    SQLite       a file of its own beside the ledger, which is never waited for to be on disk. Who
                 finds no other process alive makes it again from the ledger.
    PostgreSQL   the table `cap_shares` of the ledger; a process is dead 15 s after its last sign,
                 by the clock of the database.

An account that is not there is added up from the ledger. Nothing here is called on an event loop.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from ledger.model.errors import LedgerError
from ledger.parts.budgets import spent as sums
from ledger.parts.budgets.book import Account, Change, Place, Standing, oldest_step, step_name
from ledger.parts.budgets.caps import NOTHING, Amounts, minus, plus
from ledger.parts.budgets.share_rows import FileRows, Rows, ServerRows
from ledger.settings.names import Names
from ledger.store import db
from ledger.store.engines import sqlite_file, urls
from ledger.store.keys import instant_text
from ledger.store.processes import nodes

ANSWER_SECONDS_MAX = 3.0
"""How long the ledger is waited for."""
RETRY_SECONDS = 1.0
"""How long a ledger that could not be asked is not asked again."""
OWN_MAX = 10_000
"""Own parts that are remembered. Those that hold nothing are forgotten, and begin a new row."""
PRUNE_SECONDS = 3_600
ALL = ""
"""The account of a cap for sessions that says that all of them were added up."""


@dataclass(slots=True)
class _Own:
    """This process's part of an account."""

    account: Account
    place: Place
    row: str
    spent: Amounts = NOTHING
    held: Amounts = NOTHING
    is_told: bool = True
    is_made: bool = False
    """The account stands in the table."""


type Answer = list[Standing] | str | None
"""None: it waits behind another one."""


class SharedCaps:
    """The caps that one process shares; used by one thread at a time."""

    def __init__(
        self, url: str, *, node: str, file: Path, is_written: Callable[[], bool] = lambda: True
    ) -> None:
        """`file`: the SQLite file that the process writes, the ledger or its spool; `is_written`:
        whether that has all that was settled."""
        self._node = node
        self._file = file
        self._is_written = is_written
        self._is_spooling = urls.sqlite_path(url) is None
        self._ledger = db.open_engine(url, answer_seconds_max=ANSWER_SECONDS_MAX)
        self._rows: Rows | None = None
        self._own: dict[Place, _Own] = {}
        self._made: set[str] = set()
        """Keys of caps of which the ledger has all that this process settled before."""
        self._count = 0
        self._trouble = ""
        self._quiet_until = float("-inf")
        self._prune_at = float("-inf")

    def turn(
        self,
        changes: Iterable[Change],
        wanted: Sequence[tuple[Sequence[Account], Amounts]],
        names: Names,
        now: datetime,
    ) -> list[Answer]:
        """Settle, then reserve: for each request what the table has of its accounts, up to the
        first that it does not fit into, or why that is not known. LedgerError if the ledger cannot
        be asked."""
        for change in changes:
            self._add(change)
        reserved: list[tuple[_Own, Amounts]] = []
        of_wanted = [self._own_of(account) for accounts, _ in wanted for account in accounts]
        untold = [own for own in self._own.values() if not own.is_told]
        try:
            with self._asking() as rows:
                lacking = {own.place: self._lack(rows, own, names, now) for own in of_wanted}
                untold = [own for own in untold if not self._lack(rows, own, names, now)]
                with rows.writing():
                    for own in untold:
                        self._tell(rows, own, now)
                    may_go_together = len(wanted) > 1 and not any(lacking.values())
                    if may_go_together and (
                        (together := self._together(rows, wanted, now, reserved)) is not None
                    ):
                        return together
                    answers: list[Answer] = []
                    ahead: set[Place] = set()
                    for accounts, hold in wanted:
                        places = {account.place for account in accounts}
                        lack = next(filter(None, map(lacking.get, places)), "")
                        answer: Answer = lack or None
                        if not lack and places.isdisjoint(ahead):
                            answer = self._reserve(rows, accounts, hold, now, reserved)
                        if not isinstance(answer, str) and not (answer and answer[-1].fits):
                            ahead |= places
                        answers.append(answer)
                    return answers
        except LedgerError:
            # Whether it was done is not known; what is true is told the next time.
            for own, hold in reserved:
                own.held = minus(own.held, hold)
            for own in (*untold, *of_wanted):
                own.is_told = False
            raise

    def look(self, accounts: Sequence[Account], names: Names, now: datetime) -> list[Standing]:
        """Give a sign of life, see who is dead, and read these accounts, which are added up if need
        be. LedgerError if the ledger cannot be asked."""
        with self._asking() as rows:
            rows.sign(self._node)
            live: set[str] | None = None
            for place, row, spent, held in rows.holding(self._node):
                live = self._live(rows) if live is None else live
                if row.rpartition("#")[0] not in live:  # what a dead process held is spent
                    rows.put(place, row, plus(spent, held), NOTHING, None)
            if time.monotonic() >= self._prune_at:
                self._prune_at = time.monotonic() + PRUNE_SECONDS
                rows.prune()
            for own in self._own.values():
                if not own.is_told and not self._lack(rows, own, names, now):
                    self._tell(rows, own, now)
            found = []
            for account in accounts:
                own = self._own_of(account)
                self._make(rows, own, names, now)
                found.append(self._standing(rows, own, now, fits=True))
            return found

    def leave(self) -> None:
        """This process ends: what it spent is of all."""
        if self._rows is not None:
            with contextlib.suppress(LedgerError), self._asking() as rows:
                rows.leave(self._node)
            self._close()
        self._ledger.dispose()

    # The rules

    def _lack(self, rows: Rows, own: _Own, names: Names, now: datetime) -> str:
        """Why an account cannot be used yet; empty: it can."""
        try:
            self._make(rows, own, names, now)
        except LedgerError as error:
            return str(error)
        return ""

    def _add(self, change: Change) -> None:
        own = self._own_of(change.account)
        own.held = plus(own.held, change.held)
        parts = [own]
        if change.account.cap.period == "5h":
            place = Place(own.place.cap, step_name(change.at))
            parts.append(self._own_of(change.account, place))
        for each in parts:
            each.spent = plus(each.spent, change.spent)
            each.is_told = False

    def _together(
        self,
        rows: Rows,
        wanted: Sequence[tuple[Sequence[Account], Amounts]],
        now: datetime,
        reserved: list[tuple[_Own, Amounts]],
    ) -> list[Answer] | None:
        """Reserve for all at once, which costs as much as for one; None: they do not all fit, or
        are not of the same accounts."""
        accounts, hold = wanted[0]
        for others, more in wanted[1:]:
            if list(others) != list(accounts):
                return None
            hold = plus(hold, more)
        found = self._reserve(rows, accounts, hold, now, reserved)
        return [found] * len(wanted) if all(each.fits for each in found) else None

    def _reserve(
        self,
        rows: Rows,
        accounts: Sequence[Account],
        hold: Amounts,
        now: datetime,
        reserved: list[tuple[_Own, Amounts]],
    ) -> list[Standing]:
        found: list[Standing] = []
        taken: list[_Own] = []
        for account in accounts:
            own = self._own_of(account)
            more = plus(own.held, hold)
            whole = rows.put(
                own.place, own.row, own.spent, more, account.limits, since=_since(own, now)
            )
            if whole is None:
                found.append(self._standing(rows, own, now, fits=False))
                for each in taken:
                    each.held = minus(each.held, hold)
                    reserved.remove((each, hold))
                    self._tell(rows, each, now)
                return found
            own.held = more
            taken.append(own)
            reserved.append((own, hold))
            found.append(Standing(True, *whole))
        return found

    def _tell(self, rows: Rows, own: _Own, now: datetime) -> None:
        if rows.put(own.place, own.row, own.spent, own.held, None, since=_since(own, now)) is None:
            self._lost(own)
            raise LedgerError("what the caps have spent is missing, and is added up again")
        own.is_told = True

    def _standing(self, rows: Rows, own: _Own, now: datetime, *, fits: bool) -> Standing:
        whole = rows.read(own.place, since=_since(own, now))
        if whole is None:
            self._lost(own)
            raise LedgerError("what the caps have spent is missing, and is added up again")
        return Standing(fits, *whole)

    def _make(self, rows: Rows, own: _Own, names: Names, now: datetime) -> None:
        """Add an account up from the ledger, unless the table has it."""
        if own.is_made:
            return
        cap, place = own.account.cap, own.place
        is_known = rows.read(place) is not None or place != own.account.place
        is_of_session = cap.period == "session"
        if not is_known and not (is_of_session and rows.read(Place(place.cap, ALL)) is not None):
            self._wait_until_written(cap.identity, now)
            live = self._live(rows)
            with self._ledger.connect() as connection:
                if self._is_spooling:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                at = own.account.since or now
                parts = sums.of_cap(connection, cap, names, at, live=live)
            if cap.period == "5h":
                whole = NOTHING
                for amounts in parts.values():
                    whole = plus(whole, amounts)
                steps = {
                    step_name(minute): amounts
                    for minute, amounts in parts.items()
                    if isinstance(minute, datetime)
                }
                if rows.insert(place.cap, {place.account: whole}):
                    rows.insert(place.cap, steps)
            elif is_of_session:
                rows.insert(place.cap, {**parts, ALL: NOTHING})
            else:
                rows.insert(place.cap, {place.account: parts.get(None, NOTHING)})
        if rows.read(place) is None:
            rows.insert(place.cap, {place.account: NOTHING})
        own.is_made = True

    def _wait_until_written(self, key: str, now: datetime) -> None:
        """Until the ledger has what this process settled before it kept a cap."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while key not in self._made:
            if self._is_written() and not (self._is_spooling and self._is_spooled(now)):
                self._made.add(key)
            elif time.monotonic() > deadline:
                raise LedgerError("it does not have yet what was settled before")
            else:
                time.sleep(0.01)

    def _is_spooled(self, before: datetime) -> bool:
        """Whether exchanges that were settled before wait in the spool."""
        query = (
            "SELECT 1 FROM outbox JOIN exchanges ON exchanges.id = outbox.exchange_id "
            "AND exchanges.opened_at = outbox.opened_at WHERE exchanges.settled_at < ? LIMIT 1"
        )
        with contextlib.closing(sqlite_file.connect(self._file)) as spool:
            return spool.execute(query, [instant_text(before)]).fetchone() is not None

    def _live(self, rows: Rows) -> set[str]:
        """The processes that tell what they have."""
        if self._is_spooling:
            return rows.signed()
        return {each for each in rows.signed() if nodes.is_alive(self._file, each)} | {self._node}

    def _lost(self, own: _Own) -> None:
        """The account stands in the table no more: the ledger has what this process spent."""
        own.spent, own.is_made, own.is_told = NOTHING, False, own.held == NOTHING
        self._made.discard(own.place.cap)

    def _own_of(self, account: Account, place: Place | None = None) -> _Own:
        place = place or account.place
        found = self._own.get(place)
        if found is None:
            if len(self._own) >= OWN_MAX:
                idle = [
                    key for key, own in self._own.items() if own.is_told and own.held == NOTHING
                ]
                for key in idle[: len(idle) // 2 + 1]:
                    del self._own[key]
            self._count += 1
            found = self._own[place] = _Own(account, place, f"{self._node}#{self._count}")
        found.account = account
        return found

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Rows]:
        """The rows; LedgerError for whatever is wrong with them, or was a moment ago."""
        if time.monotonic() < self._quiet_until:
            raise LedgerError(self._trouble)
        try:
            if self._rows is not None and not self._rows.is_there():
                self._close()
            if self._rows is None:
                self._rows = self._opened()
            yield self._rows
        except LedgerError:
            raise
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            self._trouble = str(error)
            if isinstance(error, sa.exc.DBAPIError):
                self._trouble = urls.not_opened(self._ledger.url, error)
            self._quiet_until = time.monotonic() + RETRY_SECONDS
            self._close(is_broken=type(error) is sqlite3.DatabaseError)
            raise LedgerError(self._trouble) from error
        finally:
            if not self._is_spooling:
                self._ledger.dispose()  # the file may be moved

    def _opened(self) -> Rows:
        rows: Rows
        if self._is_spooling:
            rows = ServerRows(self._ledger)
        else:
            rows = FileRows(
                self._file.with_name(f"{self._file.name}-caps"),
                is_alive=lambda node: nodes.is_alive(self._file, node),
                seconds_max=ANSWER_SECONDS_MAX,
            )
            if self._node not in rows.signed():  # a new file: the ledger has what was spent
                for own in self._own.values():
                    self._lost(own)
        rows.sign(self._node)
        return rows

    def _close(self, *, is_broken: bool = False) -> None:
        if self._rows is not None:
            with contextlib.suppress(Exception):
                self._rows.close(is_broken=is_broken)
            self._rows = None


def _since(own: _Own, now: datetime) -> str | None:
    """Of a rolling period: from which step on it counts."""
    is_rolling = own.account.cap.period == "5h" and own.place == own.account.place
    return oldest_step(now) if is_rolling else None
