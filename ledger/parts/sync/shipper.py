"""Database. The shipper: copies a spool into the shared PostgreSQL, as fast as that accepts it.

    writer ──commit──▶ spool, outbox ──bundle──▶ PostgreSQL ──committed──▶ outbox cleared

A bundle is idempotent, and the outbox is cleared only after the database has committed. After a
crash or a lost connection the same bundle is shipped again, which changes nothing. Every problem
with the database (down, slow, full, in failover, deadlocked, another schema) is handled alike: it
is logged once when it begins and once when it ends, the shipper retries after at most
`RECONNECT_SECONDS_MAX`, and meanwhile the outbox grows on disk. A single row that the database
refuses is set aside and retried at the next start. Shipped exchanges stay for `KEPT_DAYS`, for
inspection, and are then dropped, so the spool grows only while exchanges cannot be shipped.

Of several processes that share a spool one ships. When it ends, another one takes over.
"""

import contextlib
import os
import sqlite3
import threading
import time
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from queue import Empty, Queue

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from ledger.model.errors import LedgerError
from ledger.model.exchange import SESSION_OPERATIONS, State
from ledger.parts.sync import bundles
from ledger.parts.sync.merging import ANSWER_SECONDS_MAX, BUNDLE_EXCHANGES_MAX, deliver
from ledger.store import db, retention, secret, spool
from ledger.store.engines import urls
from ledger.store.engines.refusals import reason_of
from ledger.store.keys import Key, instant_text
from ledger.store.processes import nodes, recovery
from ledger.store.processes.supervision import Companion, Log, pause_after
from ledger.store.retention import drop
from ledger.store.spool import RefusedExchange
from ledger.store.tables import exchanges, outbox, set_aside
from ledger.store.writing.running_totals import Price
from ledger.text.figures import seconds_text

KEPT_DAYS = 7
SESSIONS_KEPT_DAYS = 90
"""Rows of hosted agents' sessions: a total that is read again is booked as what is beyond them."""
SHIP_AFTER_SECONDS = 0.5
"""How long changes gather before they are shipped: longer means later rows, shorter means more
statements."""
SHIPPER_IDLE_SECONDS = 30.0
WATCH_SECONDS = 0.25
"""How often it looks for commits of other processes."""
SHIPPER_TURN_SECONDS = 0.25
"""How often a process that does not ship tries whether the one that did has ended."""
TURN_BUNDLES_MAX = 20
"""Bundles of one turn, which then takes a few seconds."""
MEETING_SECONDS = 5.0
"""How long a proxy that never met its shared ledger waits at the start for what does not answer. A
meeting takes 0.1 to 0.4 s on the same machine, and 2 s where that is busy. Without it, all keys of
this process get fingerprints of their own."""
MEETING_CONNECTS = 8
"""How many times as long as connecting took it waits beside, once it is connected: a meeting is 22
round trips, and connecting 4 to 6 of them. At 100 ms each that is 2.8 s."""
MEETING_SECONDS_MAX = 10.0
"""For lines of up to 200 ms."""
_OWN_FINGERPRINTS = (
    "Keys that are recorded before the first connection to the shared ledger have other "
    "fingerprints, until the next start; one TOKENTEE_SECRET_FILE for all proxies prevents this"
)
PRUNING_BATCHES_MAX = 20
"""Batches of old exchanges that are dropped from the spool in one turn."""
RECONNECT_SECONDS = 0.5
RECONNECT_SECONDS_MAX = 30.0
HEARTBEAT_SECONDS = 60.0
HOUSEKEEPING_SECONDS = 3600.0
SETTLING_SECONDS = 600.0
"""After a reconnect, nodes have this long to send a heartbeat before any is recorded as lost."""

_UNWELCOME = ("authentication failed", "no pg_hba.conf entry", "does not exist")
"""Texts in PostgreSQL's refusal of a wrong user, password, host or database name; libpq has no
error code for them."""
_SHIPPING_ERRORS = (sa.exc.SQLAlchemyError, LedgerError, sqlite3.Error, OSError)


class Shipper(Companion):
    """Ships a spool, in a thread of its own."""

    def __init__(self, path: Path, target: URL, *, log: Log, price: Price | None = None) -> None:
        super().__init__("shipper", log=log)
        self._price = price
        self._path = path
        self._url = target
        self._spool = db.open_engine(f"sqlite:///{path}")
        self._watching: sqlite3.Connection | None = None
        self._target: Engine | None = None
        self._turn: int | None = None
        self._trouble: str | None = None
        self._logged: set[str] = set()
        self._months: set[date] = set()
        self._due: dict[str, float] = {}
        """When each periodic task is due, as `time.monotonic`; empty before the first connection.
        """
        self._changed = threading.Event()

    def wake(self) -> None:
        """Ship soon: the outbox has new rows."""
        self._changed.set()

    def stop(self, timeout_seconds: float) -> None:
        """Ship the outbox within the timeout and stop; the rest is shipped after the next start."""
        self._stopping.set()
        self._changed.set()
        if self._thread.join(timeout_seconds):
            self._spool.dispose()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if not self._take_turn():
                self._stopping.wait(SHIPPER_TURN_SECONDS)
                continue
            version = self._spool_version()
            try:
                is_done = self._ship()
                self._keep_house()
            except _SHIPPING_ERRORS as error:
                self._begin_trouble(error)
                failures += 1
                self._stopping.wait(
                    pause_after(
                        failures, first_seconds=RECONNECT_SECONDS, seconds_max=RECONNECT_SECONDS_MAX
                    )
                )
            else:
                failures = 0
                if self._trouble is not None:
                    self._trouble = None
                    with contextlib.suppress(*_SHIPPING_ERRORS), db.writing(self._spool) as spooled:
                        db.note(spooled, "trouble", None)
                    target = urls.shown(self._url)
                    self._log("warning", f"the shared ledger {target} is written again")
                if is_done:
                    until = time.monotonic() + SHIPPER_IDLE_SECONDS
                    while time.monotonic() < until and version == self._spool_version():
                        if self._changed.wait(min(WATCH_SECONDS, SHIPPER_IDLE_SECONDS)):
                            break
                    self._changed.clear()
                    self._stopping.wait(SHIP_AFTER_SECONDS)
        with contextlib.suppress(*_SHIPPING_ERRORS):
            # Unless another process ships. The one that does looks again after it gave its turn
            # back: others may have ended meanwhile.
            while self._turn is not None or (self._is_waiting() and self._take_turn()):
                while not self._ship():
                    pass
                self._give_turn_back()
        self._disconnect()
        if self._watching is not None:
            self._watching.close()
        self._give_turn_back()

    def _is_waiting(self) -> bool:
        """Whether the outbox has rows."""
        with self._spool.connect() as connection:
            return pending(connection, 1)[1] is not None

    def _take_turn(self) -> bool:
        """Take the turn to ship, unless another process has it; whether this one has it."""
        if self._turn is None:
            self._turn = nodes.take_turn(self._path.with_suffix(".shipper"))
        return self._turn is not None

    def _give_turn_back(self) -> None:
        if self._turn is not None:
            os.close(self._turn)
            self._turn = None

    def _spool_version(self) -> int | None:
        """A number that changes when any process commits to the spool; SQLite reads it from shared
        memory. None: not known, and rows of other processes wait for `SHIPPER_IDLE_SECONDS`."""
        try:
            if self._watching is None:
                uri = f"{self._path.absolute().as_uri()}?mode=ro"
                self._watching = sqlite3.connect(uri, uri=True, check_same_thread=False)
            version: int = self._watching.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return None
        return version

    def _ship(self) -> bool:
        """Ship bundles for one turn; whether the outbox is empty.

        Under steady load it never is. A turn is bounded, so that heartbeats and pruning go on.
        """
        target = self._connected()
        for _ in range(TURN_BUNDLES_MAX):
            with self._spool.connect() as connection:
                keys, last = pending(connection, BUNDLE_EXCHANGES_MAX)
                if last is None:
                    return True
                read = partial(bundles.read, connection)
                refused = deliver(read, target, keys, self._months, self._price)
            for one in refused:
                self._log("error", f"the shared ledger refuses exchange {one.key[1]}: {one.error}")
            with db.writing(self._spool) as connection:
                settle_outbox(connection, last, refused, now=datetime.now(UTC))
            if len(keys) < BUNDLE_EXCHANGES_MAX // 2:
                # Small bundles cost most per row: let more gather before the next turn.
                return True
        return False

    def _connected(self) -> Engine:
        """The target, after its schema was checked; checked again after every problem."""
        if self._target is None:
            target = db.ensure(self._url, answer_seconds_max=ANSWER_SECONDS_MAX)
            try:
                _meet(self._spool, target, self._log, is_recording=True)
                self._months.clear()
                with db.writing(self._spool) as connection:
                    db.note(connection, "target", urls.shown(self._url))
                    if not self._due:
                        retry_refused(connection)
            except BaseException:
                target.dispose()
                raise
            # Set last: after a failure half way, all of it is repeated.
            settled_at = time.monotonic() + SETTLING_SECONDS
            self._due = {"heartbeat": 0.0, "housekeeping": 0.0, "giving up": settled_at}
            self._target = target
        return self._target

    def _disconnect(self) -> None:
        if self._target is not None:
            self._target.dispose()
            self._target = None

    def _keep_house(self) -> None:
        """Run the periodic tasks that are due. One that raises is retried soon, and the others run
        nevertheless."""
        now, due = time.monotonic(), self._due
        if now >= due["heartbeat"]:
            due["heartbeat"] = now + RECONNECT_SECONDS_MAX
            with self._spool.connect() as connection:
                live = recovery.live_nodes(connection, self._path)
            with db.writing(self._connected()) as connection:
                recovery.record_heartbeats(connection, live)
            due["heartbeat"] = now + HEARTBEAT_SECONDS
        if now >= due["housekeeping"]:
            due["housekeeping"] = now + RECONNECT_SECONDS_MAX
            today = datetime.now(UTC).date()
            months = retention.coming_months(today)
            made = retention.make_partitions(self._connected(), months, today)
            for trouble in sorted({each for each in made.values() if each is not None}):
                lacking = ", ".join(f"{month:%Y-%m}" for month in made if made[month] == trouble)
                line = (
                    f"no partition for {lacking}: {trouble}; rows go to the default one "
                    "(`tokentee db upgrade` by the ledger's owner makes coming months)"
                )
                if line not in self._logged and len(self._logged) < 1_000:
                    self._logged.add(line)
                    self._log("warning", line)
            # Exchanges that were shipped long ago, for one turn; there may be more.
            may_be_more = all(
                drop_shipped(self._spool, now=datetime.now(UTC)) for _ in range(PRUNING_BATCHES_MAX)
            )
            due["housekeeping"] = now if may_be_more else now + HOUSEKEEPING_SECONDS
        if now >= due["giving up"]:
            due["giving up"] = now + RECONNECT_SECONDS_MAX
            with db.writing(self._connected()) as connection:
                recovery.mark_lost_of_silent_nodes(connection)
            due["giving up"] = now + HOUSEKEEPING_SECONDS

    def _begin_trouble(self, error: Exception) -> None:
        self._disconnect()
        is_of_database = isinstance(error, sa.exc.DBAPIError)
        trouble = reason_of(error, urls.password_of(self._url)) if is_of_database else str(error)
        if trouble != self._trouble:
            with contextlib.suppress(*_SHIPPING_ERRORS), db.writing(self._spool) as connection:
                db.note(connection, "trouble", trouble)
            self._log(
                "warning",
                f"cannot ship to the shared ledger {urls.shown(self._url)}: {trouble}; "
                f"exchanges wait in {self._path}",
            )
        self._trouble = trouble


def open_spool(target: URL, *, log: Log, price: Price | None = None) -> tuple[Path, Shipper]:
    """The file of a shared database's spool, and its shipper.

    The database may be down: the shipper connects when it can. Only a proxy that never had a
    connection waits for one at the start, because it needs the shared secret to hash keys as the
    other proxies do: for `MEETING_SECONDS`, and longer where the line is slow. If the database
    refuses the login, LedgerError is raised.
    """
    path = spool.path_for(target)
    engine = db.ensure(f"sqlite:///{path}")
    with db.disposing(engine), engine.connect() as connection:
        has_met = db.noted(connection, "met") is not None
    shipper = Shipper(path, target, log=log, price=price)
    if not has_met:
        failed: list[LedgerError] = []
        connected: Queue[float] = Queue(1)
        meeting = threading.Thread(
            target=_first_meeting, args=(path, target, log, failed, connected), daemon=True
        )
        began = time.monotonic()
        meeting.start()
        with contextlib.suppress(Empty):
            connecting = connected.get(timeout=MEETING_SECONDS)
            seconds = min(MEETING_SECONDS_MAX, MEETING_SECONDS + MEETING_CONNECTS * connecting)
            meeting.join(max(0.0, began + seconds - time.monotonic()))
        if failed and any(word in str(failed[0]) for word in _UNWELCOME):
            raise failed[0]
        if failed or meeting.is_alive():
            late = (
                f"{urls.shown(target)} is not ready after {seconds_text(time.monotonic() - began)}"
            )
            why = str(failed[0]) if failed else late
            log("warning", f"{why}; exchanges wait in {path}. {_OWN_FINGERPRINTS}")
    return path, shipper


def _first_meeting(
    path: Path, target: URL, log: Log, failed: list[LedgerError], connected: Queue[float]
) -> None:
    """Fetch the secret of the shared ledger over connections of its own, which may outlast the
    start. How long connecting took goes into `connected`, also where it failed."""
    began = time.monotonic()
    try:
        with (
            db.disposing(db.open_engine(target, answer_seconds_max=ANSWER_SECONDS_MAX)) as first,
            # Why it fails is what opening the ledger says.
            contextlib.suppress(sa.exc.SQLAlchemyError, OSError),
        ):
            first.connect().close()
        connected.put(time.monotonic() - began)
        with (
            db.disposing(db.open_engine(f"sqlite:///{path}")) as own,
            db.disposing(db.ensure(target, answer_seconds_max=ANSWER_SECONDS_MAX)) as shared,
        ):
            _meet(own, shared, log)
    except LedgerError as error:
        failed.append(error)
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        why = reason_of(error, urls.password_of(target))
        failed.append(LedgerError(f"cannot open the shared ledger {urls.shown(target)}: {why}"))


def _meet(own: Engine, shared: Engine, log: Log, *, is_recording: bool = False) -> None:
    """Share the secret of key fingerprints, so that all proxies of one database hash keys alike.
    `is_recording`: a process has read the spool's secret already."""
    try:
        is_other = secret.share(own, shared)
    except sa.exc.ProgrammingError as error:
        log(
            "warning",
            f"cannot share the secret of key fingerprints: {reason_of(error)}; until this role has "
            "the rights that docs/operations.md lists, a key shows as another one on each machine",
        )
        return
    with db.writing(own) as connection:
        has_rows = connection.execute(sa.select(exchanges.c.id).limit(1)).first() is not None
        db.note(connection, "met", "yes")
    if is_other and (has_rows or is_recording):
        log("warning", _OWN_FINGERPRINTS)


def pending(connection: Connection, count: int) -> tuple[list[Key], int | None]:
    """The exchanges that changed first, and the number of their last row in the outbox."""
    rows = connection.execute(sa.select(outbox).order_by(outbox.c.seq).limit(count)).all()
    keys = dict.fromkeys((instant_text(row.opened_at), row.exchange_id) for row in rows)
    return list(keys), rows[-1].seq if rows else None


def settle_outbox(
    connection: Connection, last: int, refused: list[RefusedExchange], *, now: datetime
) -> None:
    """Delete the outbox up to row `last`, and set aside the exchanges that were refused."""
    connection.execute(sa.delete(outbox).where(outbox.c.seq <= last))
    db.note(connection, "shipped_at", instant_text(now))
    for one in refused:
        connection.execute(
            sa.text(
                "INSERT INTO set_aside (opened_at, exchange_id, error, refused_at) "
                "VALUES (:opened_at, :exchange_id, :error, :refused_at) "
                "ON CONFLICT (opened_at, exchange_id) DO UPDATE SET error = excluded.error"
            ),
            {
                "opened_at": one.key[0],
                "exchange_id": one.key[1],
                "error": one.error,
                "refused_at": instant_text(now),
            },
        )


def retry_refused(connection: Connection) -> int:
    """Move refused exchanges back into the outbox: an upgrade may have removed the cause."""
    put_back = connection.execute(
        sa.insert(outbox).from_select(
            ["exchange_id", "opened_at"], sa.select(set_aside.c.exchange_id, set_aside.c.opened_at)
        )
    )
    connection.execute(sa.delete(set_aside))
    return put_back.rowcount


def drop_shipped(engine: Engine, *, now: datetime) -> int:
    """Drop exchanges that were shipped more than `KEPT_DAYS` ago; how many."""
    waits = sa.exists().where(
        outbox.c.opened_at == exchanges.c.opened_at, outbox.c.exchange_id == exchanges.c.id
    )
    refused = sa.exists().where(
        set_aside.c.opened_at == exchanges.c.opened_at, set_aside.c.exchange_id == exchanges.c.id
    )
    opened_at = exchanges.c.opened_at
    old = sa.and_(
        opened_at < now - timedelta(days=KEPT_DAYS),
        sa.or_(
            opened_at < now - timedelta(days=SESSIONS_KEPT_DAYS),
            exchanges.c.operation.not_in(SESSION_OPERATIONS),
        ),
    )
    ended = exchanges.c.state != State.OPEN
    return drop(engine, sa.and_(old, ended, ~waits, ~refused))
