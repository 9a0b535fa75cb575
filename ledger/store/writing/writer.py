"""Database. The writer: from any thread into the ledger, without waiting.

    open, settle ──queue──▶ writer thread ──one statement, one fsync──▶ SQLite ──▶ on_commit

What the event loop hands over is a reference in a queue. The thread takes all that has gathered,
prices it, and commits it as one batch (`batch_insert.py`); while it does, the next batch gathers.
An exchange that was opened and settled within one batch is one row written once.

What it promises, whatever the disk does:

- `open` and `settle` never block and never raise for the database's sake.
- Every receipt is resolved: `committed`, or an `error` that says why its rows are not on disk. A
  statement waits `db.BUSY_MS_MAX` for another process, so that is the bound of its batch.
- Rows that could not be written stay in memory and are tried again, every `RETRY_SECONDS_MAX` at
  the latest. More than `WAITING_MAX` are not kept: the oldest `open` rows are let go first (their
  settled rows carry the whole exchange), then settled ones are refused; `dropped` counts them.
- A row that the database refuses goes alone, and without its charges if they are the reason; the
  rest of its batch is written.
- Each condition is said once when it begins and once when it ends.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model.charge import Charge
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Source, State
from ledger.model.learned import Learned
from ledger.model.reading import Reading
from ledger.store import db, nodes
from ledger.store.recovery import give_up_lost
from ledger.store.schema.columns import instant_text
from ledger.store.tables import learned
from ledger.store.writing import batch_insert

WAITING_MAX = 50_000
"""Rows in memory: about 150 MB, and more than a minute of a busy proxy core."""
GATHER_SECONDS = 0.01
GATHER_SIBLINGS = 4
GATHER_ENOUGH = 32
"""While at least so many exchanges are under way, a commit waits so long for company, as with
PostgreSQL's `commit_delay` and `commit_siblings`: a row alone costs 360 µs of CPU, one of sixteen
108 µs (measured). A client by itself never waits, nor does a batch that is large enough."""
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 10.0
CACHE_KIB = 16_000
CHECKPOINT_PAGES = 4_000
"""16 MB of WAL."""
LOOK_SECONDS = 1.0
"""How often the writer looks whether its file is still there: a deleted one takes writes, too."""
SAY_SECONDS = 10.0
NO_OFFSET = timedelta(0)

_REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""The row is at fault, whenever it is tried."""
_TROUBLE = (sqlite3.Error, sa.exc.DBAPIError, LedgerError, OSError)
"""The file, the disk or another process is at fault, for now."""

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]
type Log = Callable[[str, str], None]


class Companion(Protocol):
    """A thread that works on a ledger beside the writer: it ships it, or keeps its sums."""

    def start(self) -> None:
        """Begin to work."""

    def wake(self) -> None:
        """The writer has committed a batch."""

    def stop(self, timeout_seconds: float) -> None:
        """Finish, within so many seconds."""


class Receipt:
    """What becomes of a settled exchange."""

    __slots__ = ("committed", "context", "error", "exchange_id")

    def __init__(self, exchange_id: str) -> None:
        self.exchange_id = exchange_id
        self.committed = False
        self.error: str | None = None
        self.context: Any = None
        """The caller's own, to find its waiter by."""


class _Job:
    """One exchange on its way: opened, or settled with a reading and a receipt."""

    __slots__ = ("exchange", "reading", "receipt", "row")

    def __init__(
        self, exchange: Exchange, reading: Reading | None = None, receipt: Receipt | None = None
    ) -> None:
        self.exchange = exchange
        self.reading = reading
        self.receipt = receipt
        self.row: batch_insert.Row | None = None


class _Stop:
    """The last thing in the queue."""


class Ledger:
    """A ledger that is being written."""

    def __init__(
        self,
        engine: Engine,
        *,
        node: str,
        price: Price | None,
        on_commit: Callable[[Sequence[Receipt]], None] | None,
        log: Log,
        shown_url: str | None = None,
        spooling: bool = False,
        companions: Sequence[Companion] = (),
    ) -> None:
        path = db.file_of(engine.url)
        assert path is not None
        self.on_commit = on_commit
        self.shown_url = shown_url or db.shown(engine.url)
        self.dropped = 0
        """Settled exchanges that could not be kept."""
        self._engine = engine
        self._path = path
        self._node = node
        self._price = price
        self._log = log
        self._spooling = spooling
        self._companions = companions
        self._queue: SimpleQueue[_Job | Learned | _Stop] = SimpleQueue()
        self._closed = False
        self._under_way = 0
        self._trouble: str | None = None
        self._dropping = threading.Lock()
        self._quiet_until = 0.0
        self._look_at = 0.0
        self._inode: int | None = None
        self._connection: sqlite3.Connection
        self._claim: nodes.Claim
        self.secret = b""
        self.learned: dict[tuple[str, str], Learned] = {}
        self._thread = threading.Thread(target=self._run, name="tokentee-writer", daemon=True)

    def start(self) -> None:
        """Give up what dead processes left open, and start writing."""
        try:
            self._claim = nodes.Claim(self._path, self._node)
            self._open_connection()
            self.secret = db.secret_of(self._engine)
            self.learned = _learned(self._engine, datetime.now(UTC))
            lost = give_up_lost(
                self._engine,
                self._path,
                self._node,
                now=datetime.now(UTC),
                spooling=self._spooling,
            )
        except (sqlite3.Error, sa.exc.DBAPIError, OSError) as error:
            self._engine.dispose()
            raise LedgerError(f"cannot write the ledger {self.shown_url}: {error}") from error
        if lost:
            self._log("warning", f"{lost} exchanges of a process that died are recorded as lost")
        self._thread.start()
        for companion in self._companions:
            companion.start()

    def open(self, exchange: Exchange) -> None:
        """Note that a request goes upstream; its row is on disk about then."""
        assert exchange.state is State.OPEN, exchange.state
        _assert_utc(exchange)
        # The settled row carries all of it, so an open one is worth less room.
        if not self._closed and self._queue.qsize() < WAITING_MAX // 2:
            self._under_way += 1
            self._queue.put(_Job(exchange))

    def settle(self, exchange: Exchange, reading: Reading) -> Receipt:
        """Write down how an exchange ended and what was read; settling twice changes nothing."""
        assert exchange.state is not State.OPEN, exchange.state
        assert reading.exchange_id == exchange.id, reading.exchange_id
        assert reading.opened_at == exchange.opened_at, reading.opened_at
        _assert_utc(exchange)
        receipt = Receipt(exchange.id)
        self._under_way = max(0, self._under_way - 1)
        if self._closed or self._queue.qsize() >= WAITING_MAX:
            receipt.error = "the ledger is closed" if self._closed else "the ledger is overrun"
            self._count_dropped(1, receipt.error)
        else:
            self._queue.put(_Job(exchange, reading, receipt))
        return receipt

    def learn(self, lesson: Learned) -> None:
        """Remember what traffic has taught about an upstream."""
        self.learned[lesson.origin, lesson.path] = lesson
        if not self._closed and self._queue.qsize() < WAITING_MAX:
            self._queue.put(lesson)

    def close(self, timeout_seconds: float) -> None:
        """Write what is waiting, for so long at most, and stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(_Stop())
        deadline = time.monotonic() + timeout_seconds
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            count = self._queue.qsize()
            self._log("error", f"{count} writes did not end within {timeout_seconds:g} s")
            return
        for companion in self._companions:
            companion.stop(max(0.0, deadline - time.monotonic()))
        self._claim.release()
        self._engine.dispose()

    # The writer thread

    def _run(self) -> None:
        waiting: list[_Job] = []
        stopping = False
        pause_seconds, retry_at = RETRY_SECONDS, 0.0
        while not stopping:
            pause = max(0.0, retry_at - time.monotonic()) if waiting else None
            jobs, lessons, stopping = self._take(pause)
            waiting += jobs
            if waiting and (stopping or time.monotonic() >= retry_at):
                waiting = self._flush(waiting)
                if waiting:
                    pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
                    retry_at = time.monotonic() + pause_seconds
                else:
                    pause_seconds, retry_at = RETRY_SECONDS, 0.0
            for lesson in lessons:
                self._keep(lesson)
            if waiting:
                self._resolve(waiting, error=self._trouble)
                waiting = self._bounded(waiting)
        if waiting:
            self._drop(waiting)
        self._connection.close()

    def _take(self, wait_seconds: float | None) -> tuple[list[_Job], list[Learned], bool]:
        """All that has gathered; waits for the first of it, for ever or as long as told."""
        jobs: list[_Job] = []
        lessons: list[Learned] = []
        try:
            item = self._queue.get(timeout=wait_seconds)
            if self._queue.qsize() < GATHER_ENOUGH and self._under_way >= GATHER_SIBLINGS:
                time.sleep(GATHER_SECONDS)
            while True:
                if isinstance(item, _Job):
                    jobs.append(item)
                elif isinstance(item, Learned):
                    lessons.append(item)
                else:
                    return jobs, lessons, True
                item = self._queue.get_nowait()
        except Empty:
            return jobs, lessons, False

    def _flush(self, waiting: list[_Job]) -> list[_Job]:
        """Write what waits, batch by batch; what could not be written now."""
        settled = {job.exchange.id for job in waiting if job.reading is not None}
        waiting = [j for j in waiting if j.reading is not None or j.exchange.id not in settled]
        while waiting:
            batch = waiting[: batch_insert.ROWS_MAX]
            try:
                self._look()
                self._write(batch)
            except _TROUBLE as error:
                self._begin_trouble(error)
                return waiting
            self._end_trouble()
            self._resolve(batch, error=None)
            for companion in self._companions:
                companion.wake()
            waiting = waiting[batch_insert.ROWS_MAX :]
        return waiting

    def _write(self, batch: list[_Job]) -> None:
        for job in batch:
            self._prepare(job)
        jobs = [job for job in batch if job.row is not None]
        if not jobs:
            return
        try:
            self._connection.execute(*batch_insert.statement([job.row for job in jobs if job.row]))
        except _REFUSED:
            for job in jobs:
                self._write_alone(job)

    def _write_alone(self, job: _Job) -> None:
        """Write one row of a batch that was refused: as it is, cleaned, or without its charges."""
        assert job.row is not None
        refusal: Exception | None = None
        for row in (
            job.row,
            batch_insert.cleaned(job.row),
            batch_insert.uncharged(batch_insert.cleaned(job.row)),
        ):
            try:
                self._connection.execute(*batch_insert.statement([row]))
            except _REFUSED as error:
                refusal = refusal or error
            else:
                if refusal:
                    self._log("warning", f"exchange {job.exchange.id} was put right: {refusal}")
                return
        self._refuse(job, f"the ledger refuses it: {refusal}")

    def _prepare(self, job: _Job) -> None:
        if job.row is not None:
            return
        exchange, reading = self._known(job.exchange, job.reading)
        try:
            if reading is None:
                job.row = batch_insert.open_row(exchange, self._node)
            else:
                lines = self._charges(exchange, reading)
                node = self._node if exchange.source is Source.LIVE else None
                job.row = batch_insert.settled_row(exchange, reading, lines, node)
        except Exception as error:  # noqa: BLE001  # one bad row must not end the writer for all
            self._refuse(job, f"it cannot be written: {error!r}")

    def _charges(self, exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
        if self._price is None:
            return ()
        try:
            return self._price(exchange, reading)
        except Exception as error:  # noqa: BLE001  # better unpriced than not recorded
            self._say(f"exchange {exchange.id} is not priced: {error!r}")
            return ()

    def _known(
        self, exchange: Exchange, reading: Reading | None
    ) -> tuple[Exchange, Reading | None]:
        """A replayed exchange stands where it stood: its id says who it is, and a recording that
        rounds times must not make a second row of it."""
        if exchange.source is Source.LIVE or reading is None:
            return exchange, reading
        found = self._connection.execute(
            "SELECT opened_at FROM exchanges WHERE id = ?", (exchange.id,)
        ).fetchone()
        if found is None:
            return exchange, reading
        opened_at = datetime.fromisoformat(found[0])
        return replace(exchange, opened_at=opened_at), replace(reading, opened_at=opened_at)

    def _keep(self, lesson: Learned) -> None:
        """A lesson that cannot be kept is learnt again."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute(
                "INSERT INTO learned (origin, path, verdict, learned_at, expires_at) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (origin, path) DO UPDATE SET "
                "verdict = excluded.verdict, learned_at = excluded.learned_at, "
                "expires_at = excluded.expires_at",
                (
                    lesson.origin,
                    lesson.path,
                    lesson.verdict,
                    instant_text(lesson.learned_at),
                    instant_text(lesson.expires_at),
                ),
            )

    # When it does not work

    def _begin_trouble(self, error: Exception) -> None:
        trouble = str(error)
        if trouble != self._trouble:
            self._log(
                "error",
                f"cannot write the ledger {self._path}: {trouble}; the traffic goes on, "
                f"up to {WAITING_MAX} exchanges wait in memory",
            )
        self._trouble = trouble

    def _end_trouble(self) -> None:
        if self._trouble is not None:
            self._log("warning", f"the ledger {self._path} is written again")
            self._trouble = None

    def _bounded(self, waiting: list[_Job]) -> list[_Job]:
        """The newest settled rows that there is room for, and open rows while there is more."""
        if len(waiting) <= WAITING_MAX // 2:
            return waiting
        settled = [job for job in waiting if job.reading is not None]
        self._drop(settled[: -(WAITING_MAX // 2)])
        return settled[-(WAITING_MAX // 2) :]

    def _drop(self, jobs: list[_Job]) -> None:
        settled = [job for job in jobs if job.reading is not None]
        self._resolve(settled, error=self._trouble or "the ledger is closed")
        self._count_dropped(len(settled), self._trouble or "the ledger is closed")

    def _refuse(self, job: _Job, why: str) -> None:
        if job.reading is not None:
            self._resolve([job], error=why)
            self._count_dropped(1, f"exchange {job.exchange.id}: {why}")

    def _count_dropped(self, count: int, why: str) -> None:
        if count:
            with self._dropping:
                self.dropped += count
            self._say(f"{count} exchanges are not in the ledger: {why}")

    def _say(self, line: str) -> None:
        """What may come thousands of times is said now and then."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + SAY_SECONDS
            self._log("error", line)

    def _resolve(self, jobs: Sequence[_Job], *, error: str | None) -> None:
        """Tell the callers of these what became of them, once."""
        receipts = [job.receipt for job in jobs if job.receipt is not None]
        for job in jobs:
            job.receipt = None
        for receipt in receipts:
            receipt.error = error
            receipt.committed = error is None
        if receipts and self.on_commit is not None:
            try:
                self.on_commit(receipts)
            except Exception as failure:  # noqa: BLE001  # the writer outlives whoever listens
                self._say(f"nobody hears what is committed: {failure!r}")

    def _look(self) -> None:
        """See that the file that is written is the one that has the ledger's name."""
        now = time.monotonic()
        if now < self._look_at:
            return
        if self._inode is None or _inode(self._path) != self._inode:
            if self._inode is not None:
                self._log("error", f"the ledger {self._path} was removed; a new one is begun")
                self._inode = None
                self._connection.close()
                self._engine.dispose()
            db.ensure(self._engine.url).dispose()
            self._open_connection()
            db.keep_secret(self._engine, self.secret)
        self._look_at = now + LOOK_SECONDS

    def _open_connection(self) -> None:
        self._inode = _inode(self._path)
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert isinstance(connection, sqlite3.Connection)
        # Of a large ledger, a row touches pages anywhere in two indices (measured with five million
        # exchanges: a tenth less time per row).
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        for statement in batch_insert.setup(spooling=self._spooling):
            connection.execute(statement)
        self._connection = connection


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _assert_utc(exchange: Exchange) -> None:
    assert exchange.opened_at.utcoffset() == NO_OFFSET, exchange.opened_at


def _learned(engine: Engine, now: datetime) -> dict[tuple[str, str], Learned]:
    with engine.connect() as connection:
        rows = connection.execute(sa.select(learned).where(learned.c.expires_at > now))
        return {(row.origin, row.path): Learned(**row._mapping) for row in rows}
