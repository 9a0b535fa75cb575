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

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.model import door
from ledger.model.charge import Charge
from ledger.model.columns import TEXT_CHARACTERS_MAX
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Source, State
from ledger.model.learned import Learned
from ledger.model.reading import Reading
from ledger.store import db, nodes, secret
from ledger.store.recovery import give_up_lost
from ledger.store.schema.columns import instant_text
from ledger.store.supervision import SetAside, Supervisor, ThreadHealth
from ledger.store.tables import learned
from ledger.store.writing import batch_insert
from ledger.store.writing.ledger_file import LedgerFile

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

    def health(self) -> ThreadHealth:
        """How the thread does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How recording goes."""

    threads: tuple[ThreadHealth, ...]
    """The writer's first, then those beside it."""
    trouble: str | None
    """Why nothing can be committed now."""
    queued_rows: int
    dropped: int
    """Settled exchanges that could not be recorded since the start."""
    set_aside: int
    """Items that could not be written, and are kept beside the ledger."""

    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words; empty: nothing is."""
        found = [
            f"the {thread.name} does not work: {thread.error}"
            for thread in self.threads
            if not thread.is_working
        ]
        if self.trouble is not None:
            found.append(f"the ledger cannot be written: {self.trouble}")
        if self.dropped:
            found.append(f"{self.dropped} exchanges are not in the ledger")
        if self.set_aside:
            found.append(f"{self.set_aside} items were set aside")
        return tuple(found)


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
        self._file = LedgerFile(engine, path, spooling=spooling, log=log)
        self._set_aside = SetAside(path.with_name(f"{path.name}-set-aside.jsonl"), log=log)
        self._waiting: list[_Job] = []
        self._claim: nodes.Claim
        self.secret = b""
        self.learned: dict[tuple[str, str], Learned] = {}
        self._thread = Supervisor("writer", self._run, log=log, set_aside=self._set_aside)

    def start(self) -> None:
        """Give up what dead processes left open, and start writing."""
        try:
            self._claim = nodes.Claim(self._path, self._node)
            self._node = self._claim.node
            self._file.open()
            self.secret = secret.of_ledger(self._engine)
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

    @property
    def file(self) -> Path:
        """The SQLite file that is written: the ledger itself, or the spool of a shared one."""
        return self._path

    def health(self) -> Health:
        """How recording goes, for those who ask from outside."""
        return Health(
            threads=(self._thread.health(), *(each.health() for each in self._companions)),
            trouble=self._trouble,
            queued_rows=self._queue.qsize() + len(self._waiting),
            dropped=self.dropped,
            set_aside=self._set_aside.count,
        )

    def close(self, timeout_seconds: float) -> None:
        """Write what is waiting, for so long at most, and stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(_Stop())
        deadline = time.monotonic() + timeout_seconds
        if not self._thread.join(timeout_seconds):
            count = self._queue.qsize()
            self._log("error", f"{count} writes did not end within {timeout_seconds:g} s")
            return
        for companion in self._companions:
            companion.stop(max(0.0, deadline - time.monotonic()))
        self._claim.release()
        self._engine.dispose()

    # The writer thread

    def _run(self) -> None:
        """Write until told to stop; started again, it goes on with what waits."""
        stopping = self._closed and self._queue.empty()
        pause_seconds, retry_at = RETRY_SECONDS, 0.0
        while not stopping:
            pause = max(0.0, retry_at - time.monotonic()) if self._waiting else None
            jobs, lessons, stopping = self._take(pause)
            self._waiting += jobs
            if self._waiting and (stopping or time.monotonic() >= retry_at):
                self._waiting = self._flush(self._waiting)
                if self._waiting:
                    pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)
                    retry_at = time.monotonic() + pause_seconds
                else:
                    pause_seconds, retry_at = RETRY_SECONDS, 0.0
            for lesson in lessons:
                self._keep(lesson)
            if self._waiting:
                self._resolve(self._waiting, error=self._trouble)
                self._waiting = self._bounded(self._waiting)
        if self._waiting:
            self._drop(self._waiting)
        self._file.close()

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
                elif isinstance(item, _Stop):
                    return jobs, lessons, True
                else:
                    self._set_aside.add(item, TypeError("nothing that a writer takes"))
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
                self._file.look()
                self._write(batch)
            except _TROUBLE as error:
                self._begin_trouble(error)
                return waiting
            except Exception as error:  # noqa: BLE001  # of a step that no row explains: as trouble
                self._set_aside.add("a batch, which is tried again", error)
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
            self._execute([job.row for job in jobs if job.row])
        except _TROUBLE as error:
            if not isinstance(error, _REFUSED):
                raise
            self._write_each(jobs)
        except Exception:  # noqa: BLE001  # some row cannot be written, whatever it raises
            self._write_each(jobs)

    def _write_each(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            self._write_alone(job)

    def _execute(self, rows: Sequence[batch_insert.Row]) -> None:
        self._file.connection.execute(*batch_insert.statement(rows))

    def _write_alone(self, job: _Job) -> None:
        """Write one row of a batch that was refused: as it is, cleaned, or without its charges."""
        assert job.row is not None
        refusal: Exception | None = None
        for row in (job.row, batch_insert.uncharged(job.row)):
            try:
                self._execute([row])
            except Exception as error:  # set aside, unless it is trouble
                if isinstance(error, _TROUBLE) and not isinstance(error, _REFUSED):
                    raise
                refusal = refusal or error
            else:
                if refusal:
                    self._say(f"exchange {job.exchange.id} is recorded unpriced: {refusal}")
                return
        assert refusal is not None
        self._refuse(job, refusal)

    def _prepare(self, job: _Job) -> None:
        if job.row is not None:
            return
        try:
            exchange, reading = self._known(*door.admitted(job.exchange, job.reading))
            if reading is None:
                job.row = batch_insert.open_row(exchange, self._node)
            else:
                lines = self._charges(exchange, reading)
                node = self._node if exchange.source is Source.LIVE else None
                job.row = batch_insert.settled_row(exchange, reading, lines, node)
        except _TROUBLE as error:
            if not isinstance(error, _REFUSED):
                raise
            self._refuse(job, error)
        except Exception as error:  # noqa: BLE001  # one bad row must not end the writer for all
            self._refuse(job, error)

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
        found = self._file.connection.execute(
            "SELECT opened_at FROM exchanges WHERE id = ?", (exchange.id,)
        ).fetchone()
        if found is None:
            return exchange, reading
        opened_at = datetime.fromisoformat(found[0])
        return replace(exchange, opened_at=opened_at), replace(reading, opened_at=opened_at)

    def _keep(self, lesson: Learned) -> None:
        """A lesson that cannot be kept is learnt again."""
        try:
            self._file.connection.execute(
                "INSERT INTO learned (origin, path, verdict, learned_at, expires_at) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (origin, path) DO UPDATE SET "
                "verdict = excluded.verdict, learned_at = excluded.learned_at, "
                "expires_at = excluded.expires_at",
                (
                    door.text_of(lesson.origin),
                    door.text_of(lesson.path, TEXT_CHARACTERS_MAX),
                    door.text_of(lesson.verdict),
                    instant_text(lesson.learned_at),
                    instant_text(lesson.expires_at),
                ),
            )
        except Exception as error:  # noqa: BLE001  # a lesson must not end the writer
            if not isinstance(error, sqlite3.OperationalError):
                self._set_aside.add(lesson, error)

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

    def _refuse(self, job: _Job, error: Exception) -> None:
        """Set an exchange aside that cannot be written, whenever it is tried."""
        job.row = None
        self._set_aside.add((job.exchange, job.reading), error)
        if job.reading is not None:
            why = f"the ledger refuses it: {error!r}"
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


def _assert_utc(exchange: Exchange) -> None:
    assert exchange.opened_at.utcoffset() == NO_OFFSET, exchange.opened_at


def _learned(engine: Engine, now: datetime) -> dict[tuple[str, str], Learned]:
    with engine.connect() as connection:
        rows = connection.execute(sa.select(learned).where(learned.c.expires_at > now))
        return {(row.origin, row.path): Learned(**row._mapping) for row in rows}
