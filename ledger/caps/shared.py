"""Database. Shares of caps, in the ledger that processes have in common.

A lease says that a process keeps a cap: what it settles since, the ledger's sums leave out, and its
own rows of `cap_leases` say what it uses and took of each account. A row without a node has what no
lease covers; it is added up when a process joins or is gone.

    SQLite       a process is gone when the lock of its node is free. Its rows are in the ledger,
                 so they are counted there.
    PostgreSQL   a process is gone when it was silent for `SILENT_SECONDS`. Its last rows may still
                 lie in its spool, so what it said it uses counts, or what the ledger has if that is
                 more. One that has shipped everything says so, and is counted in the ledger.

Nothing here is called on an event loop.
"""

import contextlib
import hashlib
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.caps import spent
from ledger.caps.book import STEP, Ask, account_name
from ledger.caps.caps import NOTHING, ROLLING, Amounts, Cap
from ledger.caps.leases import CapPart, Grant, Silence, grant, minus, plus
from ledger.model.errors import LedgerError
from ledger.settings.names import Names
from ledger.store import db
from ledger.store.engines import sqlite_file, urls
from ledger.store.keys import instant_text
from ledger.store.processes import nodes
from ledger.store.processes.recovery import record_heartbeats
from ledger.store.tables import CAP_AMOUNTS, CAP_PARTS, cap_leases
from ledger.store.tables import nodes as heartbeats

ANSWER_SECONDS_MAX = 3.0
"""Shorter than a slice lasts."""
ATTEMPTS_MAX = 20
"""Of adding up while other processes join and leave."""
CLOCKS = timedelta(minutes=3)
"""How far clocks of processes may be apart."""
KEPT = timedelta(days=62)
"""Rows of a lease that is over stay longer than a month lasts."""
_COLUMNS = [f"{part}_{amount}" for part in CAP_PARTS for amount in CAP_AMOUNTS]
_c = cap_leases.c

type Answer = tuple[Ask, Grant, CapPart]


class Lease(NamedTuple):
    """A process that keeps a cap."""

    state: str
    began_at: datetime


class SharedCaps:
    """The shares of one process; used by one thread at a time."""

    def __init__(self, url: str, *, node: str, file: Path) -> None:
        """`file`: the SQLite file that the process writes, the ledger or its spool."""
        self._node = node
        self._file = file
        self._is_spooling = urls.sqlite_path(url) is None
        self._engine = db.open_engine(url, answer_seconds_max=ANSWER_SECONDS_MAX)
        if not self._is_spooling:
            # If the machine fails, all processes have ended, and with them their leases.
            sa.event.listen(
                self._engine, "connect", lambda one, _: one.execute("PRAGMA synchronous = NORMAL")
            )
        self._began: dict[str, datetime] = {}
        """Key of a cap -> since when this process keeps it."""
        self._silence = Silence()

    def join(self, cap: Cap, names: Names, since: datetime) -> bool:
        """Keep a cap, of which this process counts what it settles from a moment on. False: the
        ledger does not have all yet that was settled before."""
        with self._troubles():
            if self._is_spooling and self._is_spooled(before=since):
                return False
            key = _key(cap)
            self._began[key] = since
            self._add_up(cap, names, set())
            return True

    def exchange(
        self, caps: Sequence[Cap], names: Names, asks: Sequence[Ask], now: datetime
    ) -> tuple[list[Answer], set[tuple[str, str]]]:
        """Tell what is used, and take what is asked for; and the keys of the accounts of which
        other processes are short. The accounts of a cap without an answer are asked again."""
        keys = {_key(cap): cap for cap in caps if _key(cap) in self._began}
        with self._troubles():
            with self._engine.connect() as connection:
                leases = self._leases(connection, keys)
            found = {node for each in leases.values() for node in each if node != self._node}
            gone = self._gone(found) if found else set()
            for key, cap in keys.items():
                own = leases[key].pop(self._node, None)
                if (own is None or own.state != "live") or any(
                    each.state == "left" or (each.state == "live" and node in gone)
                    for node, each in leases[key].items()
                ):
                    self._add_up(cap, names, gone)
            writes = asks or self._is_spooling
            with db.writing(self._engine) if writes else self._engine.connect() as connection:
                self._lock(connection)
                leases = self._leases(connection, keys)
                if self._is_spooling:
                    record_heartbeats(connection, [self._node])
                short = self._short(connection, keys)
                answers = [
                    self._take(connection, ask, leases[_key(ask.account.cap)], short, now)
                    for ask in asks
                    if (own := leases.get(_key(ask.account.cap), {}).get(self._node))
                    and own.state == "live"
                ]
            return answers, short

    def leave(self, caps: Sequence[Cap]) -> None:
        """Keep these caps no more: what is not used goes back."""
        with self._troubles():
            keys = [key for cap in caps if (key := _key(cap)) in self._began]
            if keys:
                is_late = self._is_spooling and self._is_spooled(node=self._node)
                with db.writing(self._engine) as connection:
                    self._lock(connection)
                    for key in keys:
                        del self._began[key]
                        _end(connection, key, [self._node], "silent" if is_late else "left")

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        """LedgerError for whatever is wrong with the ledger."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise LedgerError(urls.not_opened(self._engine.url, error)) from error
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise LedgerError(str(error)) from error
        finally:
            if not self._is_spooling:
                self._engine.dispose()  # the file may be moved

    def _lock(self, connection: Connection) -> None:
        """One process at a time; on SQLite, whoever writes is alone."""
        if self._is_spooling:
            connection.execute(sa.text("SET LOCAL lock_timeout = '2s'"))
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('tokentee caps'))"))

    def _is_spooled(self, *, before: datetime | None = None, node: str | None = None) -> bool:
        """Whether exchanges wait in the spool: settled before a moment, or of a node."""
        query = (
            "SELECT 1 FROM outbox JOIN exchanges ON exchanges.id = outbox.exchange_id "
            "AND exchanges.opened_at = outbox.opened_at "
            "WHERE exchanges.settled_at < ? OR exchanges.node = ? LIMIT 1"
        )
        with contextlib.closing(sqlite_file.connect(self._file)) as spool:
            found = spool.execute(query, [before and instant_text(before), node])
            return found.fetchone() is not None

    def _leases(self, connection: Connection, keys: Collection[str]) -> dict[str, dict[str, Lease]]:
        """The leases of each cap by node."""
        found: dict[str, dict[str, Lease]] = {key: {} for key in keys}
        query = sa.select(_c.cap, _c.node, _c.state, _c.began_at)
        for row in connection.execute(query.where(_c.cap.in_(list(keys)), _c.account == "")):
            found[row.cap][row.node] = Lease(row.state, row.began_at)
        return found

    def _gone(self, others: set[str]) -> set[str]:
        """Those that do not live."""
        if not self._is_spooling:
            return {node for node in others if not nodes.is_alive(self._file, node)}
        with self._engine.connect() as connection:
            query = sa.select(heartbeats.c.node, heartbeats.c.seen_at)
            found = connection.execute(query.where(heartbeats.c.node.in_(others))).all()
        beats = dict.fromkeys(others) | {row.node: row.seen_at for row in found}
        return self._silence.gone(beats, time.monotonic())

    def _short(self, connection: Connection, keys: Mapping[str, Cap]) -> set[tuple[str, str]]:
        """The accounts of which other processes are short."""
        query = sa.select(_c.cap, _c.account).where(
            _c.cap.in_(list(keys)), _c.is_short, _c.node != self._node
        )
        return {(keys[row.cap].name, row.account) for row in connection.execute(query)}

    def _take(
        self,
        connection: Connection,
        ask: Ask,
        leases: Mapping[str, Lease],
        short: set[tuple[str, str]],
        now: datetime,
    ) -> Answer:
        """Take what is free of an account."""
        account = ask.account
        key = _key(account.cap)
        query = sa.select(*(_c[name] for name in _COLUMNS)).where(_c.cap == key)
        if account.cap.period == "5h":
            oldest = (now - ROLLING - STEP - CLOCKS).isoformat()
            # By minute what no lease covers; a lease that is over counts as long as the period.
            query = query.where(
                sa.or_(
                    sa.and_(_c.node == "", _c.account >= oldest),
                    sa.and_(
                        _c.account == account.name, _c.node != self._node, _c.ends_at > now
                    ),
                )
            )  # fmt: skip
        else:
            query = query.where(_c.account == account.name, _c.node != self._node)
        others = CapPart()
        for row in connection.execute(query):
            others = CapPart(*map(plus, others, _parts(tuple(row))))
        found = grant(
            account.limits,
            ask.own,
            others,
            ask.wants,
            processes=sum(each.state == "live" for each in leases.values()),
            is_contended=(account.cap.name, account.name) in short,
        )
        connection.execute(
            sa.delete(cap_leases).where(
                _c.cap == key, _c.account == account.name, _c.node == self._node
            )
        )
        kept = ROLLING + STEP + CLOCKS if account.cap.period == "5h" else KEPT
        part = ask.own._replace(taken=found.taken)
        _insert(
            connection, (key, account.name, self._node), part, now,
            kept=kept, is_short=found.is_short,
        )  # fmt: skip
        return ask, found, others

    def _add_up(self, cap: Cap, names: Names, gone: set[str]) -> None:
        """Add up what no lease covers, with those that are gone, and keep the cap."""
        key = _key(cap)
        for _ in range(ATTEMPTS_MAX):
            # Read first: adding up a month takes longer than writers of the ledger may wait.
            with self._engine.connect() as connection:
                if self._is_spooling:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                now = datetime.now(UTC)
                leases = self._leases(connection, [key])[key]
                live, silent, counted = {self._node: self._began[key]}, {}, []
                for node, lease in leases.items():
                    if node == self._node:
                        if lease.began_at != self._began[key]:
                            counted.append(node)
                    elif lease.state == "live" and node not in gone:
                        live[node] = lease.began_at
                    elif lease.state == "left" or not self._is_spooling:
                        counted.append(node)
                    else:
                        silent[node] = lease.began_at
                base = _uncovered(connection, cap, names, now, live=live, silent=silent)
            with db.writing(self._engine) as connection:
                self._lock(connection)
                if self._leases(connection, [key])[key] != leases:
                    continue
                old = [
                    _c.node.in_(counted),
                    sa.and_(_c.node == "", _c.account.in_(list(base))),
                    sa.and_(_c.node == self._node, _c.account == ""),
                    sa.and_(_c.ends_at < now, _c.state.is_distinct_from("live")),
                ]
                if cap.span(now) is None:
                    old.append(_c.node == "")
                connection.execute(sa.delete(cap_leases).where(_c.cap == key, sa.or_(*old)))
                _end(connection, key, [node for node in silent if node in gone], "silent")
                for account, amounts in base.items():
                    _insert(connection, (key, account, ""), CapPart(amounts, amounts, amounts), now)
                _insert(
                    connection, (key, "", self._node), CapPart(), now,
                    state="live", began_at=self._began[key],
                )  # fmt: skip
                return
        raise LedgerError(f"processes join and leave the cap {cap.name} all the time")


def _uncovered(
    connection: Connection,
    cap: Cap,
    names: Names,
    now: datetime,
    *,
    live: Mapping[str, datetime],
    silent: Mapping[str, datetime],
) -> dict[str, Amounts]:
    """What each account has that these leases do not cover, and what the ledger has of silent ones
    beyond what they said."""
    found: dict[str, Amounts] = {}
    shipped: defaultdict[tuple[str, str], Amounts] = defaultdict(lambda: NOTHING)
    # Near the end of a period, other clocks may be in the next one.
    moments = {account_name(cap, None, cap.since(at)): at for at in (now + CLOCKS, now)}
    for name, at in moments.items() if cap.span(now) else [("", now)]:
        if name:
            found[name] = NOTHING
        for prior in spent.beside(connection, cap, names, at, leases=live, apart=silent):
            account = name or prior.session or prior.at.isoformat()
            if prior.lease is not None:
                account = account if name or prior.session else cap.period
                shipped[prior.lease, account] = plus(shipped[prior.lease, account], prior.amounts)
            else:
                found[account] = plus(found.get(account, NOTHING), prior.amounts)
    said = {
        (row.node, row.account): _parts(tuple(row)[2:]).used
        for row in connection.execute(
            sa.select(_c.node, _c.account, *(_c[name] for name in _COLUMNS)).where(
                _c.cap == _key(cap), _c.node.in_(list(silent))
            )
        )
    }
    minute = now.replace(second=0, microsecond=0).isoformat()
    for place, amounts in shipped.items():
        more = minus(amounts, said.get(place, NOTHING))
        account = minute if cap.period == "5h" else place[1]
        beyond = Amounts(*(max(0, each or 0) for each in more))
        found[account] = plus(found.get(account, NOTHING), beyond)
    return found


def _end(connection: Connection, key: str, which: Sequence[str], state: str) -> None:
    """End leases: their slices return."""
    mine = (_c.cap == key, _c.node.in_(which))
    returned = {f"taken_{amount}": _c[f"used_{amount}"] for amount in CAP_AMOUNTS}
    connection.execute(sa.update(cap_leases).where(*mine).values(**returned, is_short=sa.false()))
    connection.execute(sa.update(cap_leases).where(*mine, _c.account == "").values(state=state))


def _insert(
    connection: Connection,
    place: tuple[str, str, str],
    part: CapPart,
    now: datetime,
    *,
    kept: timedelta = KEPT,
    **more: Any,
) -> None:
    figures = dict(zip(_COLUMNS, (each or 0 for amounts in part for each in amounts), strict=True))
    connection.execute(
        sa.insert(cap_leases).values(
            cap=place[0], account=place[1], node=place[2], ends_at=now + kept,
            **{"is_short": False, **figures, **more},
        )
    )  # fmt: skip


def _parts(row: Sequence[Any]) -> CapPart:
    return CapPart(*(Amounts(*row[place : place + 4]) for place in (0, 4, 8)))


def _key(cap: Cap) -> str:
    """A cap in the ledger: of one name and for the same requests."""
    digest = hashlib.blake2b(repr(cap.definition).encode(), digest_size=4).hexdigest()
    return f"{cap.name} {digest}"
