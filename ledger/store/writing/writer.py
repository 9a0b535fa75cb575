"""Wiring (a thread). The writer: from any thread into the ledger, without waiting.

    open, settle ──queue──▶ writer thread ──one statement, one fsync──▶ SQLite ──▶ on_commit

The event loop puts a reference into a queue (`incoming.py`). The thread takes all queued jobs,
prices them, and commits them as one batch (`batches.py`, `batch_insert.py`); meanwhile the next
batch gathers. An exchange that was opened and settled within one batch is one row written once.

Promises, also when the disk fails (`unwritten.py`):

- `open` and `settle` never block and never raise database errors.
- Every receipt is resolved: `committed`, or an `error` with the reason why its rows are not on
  disk. A batch waits at most `BUSY_MS_MAX` for another process.
- Rows that could not be written stay in memory and are retried, at most `RETRY_SECONDS_MAX` apart;
  what still waits at the end goes into a file beside the ledger, which the next start books.
  Beyond `incoming.WAITING_MAX` rows, the oldest `open` rows are dropped first (their settled rows
  hold the whole exchange), then settled ones are refused; `dropped` counts them.
- A row that the database refuses is written alone, without its charges if they are the reason; the
  rest of its batch is written.
- Each condition is logged once when it begins and once when it ends.
- A ledger that is overwritten in place is written no more: all rows go into a file beside it
  (`unwritten.py`), which the next start books. Health says so to the end. One whose schema takes no
  row is tried again every `RETRY_SECONDS_MAX`; when it takes rows, those of the file are booked.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Reading, State
from ledger.model.learned import Learned
from ledger.store import secret
from ledger.store.engines import sqlite_file
from ledger.store.processes import nodes
from ledger.store.processes.recovery import mark_lost_of_dead_nodes
from ledger.store.processes.supervision import (
    Companion,
    Log,
    RecordingHealth,
    SetAside,
    SupervisedThread,
    pause_after,
    shown,
)
from ledger.store.writing import incoming, lessons, unwritten
from ledger.store.writing.batches import Batches, Price
from ledger.store.writing.incoming import Incoming, Job, OnCommit, Receipt
from ledger.store.writing.ledger_file import BULK_CACHE_KIB, CACHE_KIB, LedgerFile
from ledger.store.writing.lessons import Lessons
from ledger.store.writing.unwritten import TROUBLE, OverwrittenError, Trouble, Unbooked, UnfitError
from ledger.text.figures import counted, seconds_text

MOVES_MAX = 3
"""Times that a batch is written again because the file was moved meanwhile."""
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 10.0
IDLE_SECONDS = 1.0
"""How often a writer that has nothing to write looks whether its file is still there."""
COMMIT_ROWS_MAX = 256
"""Rows of one commit, of a backlog or an import: some 40 ms, while others wait for the file. With
32, each page of an index was written nearly twice as often (measured)."""
NO_OFFSET = timedelta(0)


class Ledger:
    """A ledger that is being written."""

    def __init__(
        self,
        path: Path,
        *,
        node: str,
        price: Price | None,
        on_commit: OnCommit | None,
        log: Log,
        shown_url: str,
        spooling: bool = False,
        is_bulk: bool = False,
        companions: Sequence[Companion] = (),
    ) -> None:
        """`path`: its SQLite file, created or migrated if need be; `shown_url`: names the ledger
        in messages; `is_bulk`: this process only fills it."""
        self.on_commit = on_commit
        self.secret = b""
        self.first_opened_at = datetime.now(UTC)
        """No exchange that is written here was opened earlier: the start, or an earlier moment, of
        a flow from a file or after the clock was set back."""
        self._log = log
        self._companions = companions
        self._claim = nodes.Claim(path, node)
        self._waiting: list[Job] = []
        self._lessons = Lessons()
        self._trouble = Trouble(path, log=log)
        cache_kib = BULK_CACHE_KIB if is_bulk else CACHE_KIB
        self._file = LedgerFile(
            path, shown_url=shown_url, spooling=spooling, log=log, cache_kib=cache_kib
        )
        self._set_aside = SetAside(path.with_name(f"{path.name}-set-aside.jsonl"), log=log)
        self._unbooked = Unbooked(path, set_aside=self._set_aside)
        self._incoming = Incoming(self._set_aside)
        self._batches = Batches(
            self._file,
            price=price,
            trouble=self._trouble,
            set_aside=self._set_aside,
            resolve=self._resolve,
        )
        self._thread = SupervisedThread("writer", self._run, log=log, set_aside=self._set_aside)

    def start(self) -> None:
        """Mark the open rows of dead processes as lost, and start writing."""
        now, path = datetime.now(UTC), self.file
        try:
            with contextlib.ExitStack() as undoing:
                self._file.open()
                undoing.callback(self._file.close)
                self._claim.take()
                undoing.callback(self._claim.release)
                connection, node = self._file.connection, self._claim.node
                self.secret = secret.of_file(path, connection)
                self._lessons.known = lessons.valid_at(connection, now)
                self._book()
                lost = mark_lost_of_dead_nodes(
                    connection, path, node, now=now, spooling=self._file.spooling
                )
                undoing.pop_all()
        except (sqlite3.Error, OSError, OverwrittenError) as error:
            raise LedgerError(f"cannot write the ledger {self.shown_url}: {error}") from error
        if lost:
            self._log("warning", f"{lost} exchanges of a process that died are recorded as lost")
        self._batches.node = self._unbooked.node = node
        self._thread.start()
        for companion in self._companions:
            companion.start()

    def open(self, exchange: Exchange) -> None:
        """Record that a request goes upstream; its row is committed at about that time."""
        assert exchange.state is State.OPEN, exchange.state
        assert exchange.opened_at.utcoffset() == NO_OFFSET, exchange.opened_at
        self.first_opened_at = min(self.first_opened_at, exchange.opened_at)
        self._incoming.open(Job(exchange))

    def settle(self, exchange: Exchange, reading: Reading) -> Receipt:
        """Record the end and the reading of an exchange; settling twice changes nothing."""
        assert exchange.state is not State.OPEN, exchange.state
        assert reading.exchange_id == exchange.id, reading.exchange_id
        assert reading.opened_at == exchange.opened_at, reading.opened_at
        assert exchange.opened_at.utcoffset() == NO_OFFSET, exchange.opened_at
        self.first_opened_at = min(self.first_opened_at, exchange.opened_at)
        receipt = Receipt(exchange.id)
        refusal = self._incoming.settle(Job(exchange, reading, receipt))
        # Otherwise the receipt is the writer's, which may have resolved it already.
        if refusal is not None:
            receipt.error = refusal
            self._trouble.count_dropped(1, refusal)
        return receipt

    def note_answered(self, ids: Iterable[str]) -> None:
        """Tell readers which exchanges upstream is answering. It writes a file: not for an event
        loop."""
        self._claim.note_answered(ids)

    def learn(self, lesson: Learned) -> None:
        """Store a lesson about an upstream."""
        self._lessons.remember(lesson)
        self._incoming.learn(lesson)

    def refresh_lessons(self) -> None:
        """Read the lessons of other processes. It blocks: do not call it on an event loop."""
        self._lessons.refresh(self.file)

    @property
    def learned(self) -> dict[tuple[str, str], Learned]:
        """The lessons about upstreams, by origin and path."""
        return self._lessons.known

    @property
    def file(self) -> Path:
        """The SQLite file that is written: the ledger itself, or the spool of a shared one."""
        return self._file.path

    @property
    def shown_url(self) -> str:
        """Names the ledger in messages."""
        return self._file.shown_url

    @property
    def node(self) -> str:
        """This process, as its rows have it."""
        return self._claim.node

    @property
    def dropped(self) -> int:
        """Settled exchanges that were dropped."""
        return self._trouble.dropped

    def health(self) -> RecordingHealth:
        """The state of recording, for health endpoints."""
        return RecordingHealth(
            threads=(self._thread.health(), *(each.health() for each in self._companions)),
            trouble=self._unbooked.why or self._trouble.reason,
            queued_rows=self._incoming.count + len(self._waiting),
            dropped=self._trouble.dropped,
            set_aside=self._set_aside.count,
        )

    def close(self, timeout_seconds: float) -> None:
        """Write the waiting rows, within the timeout, and stop."""
        self._incoming.close()
        deadline = time.monotonic() + timeout_seconds
        if not self._thread.join(timeout_seconds):
            count = self._incoming.count
            within = seconds_text(timeout_seconds)
            self._log("error", f"{count} writes did not end within {within}")
            return
        for companion in self._companions:
            companion.stop(max(0.0, deadline - time.monotonic()))
        self._claim.release()

    # The writer thread

    def _run(self) -> None:
        """Write until the queue is closed; after a restart it continues with the waiting jobs."""
        stopping = self._incoming.is_closed and not self._incoming.count
        failures, retry_at = 0, 0.0
        while not stopping:
            pause = max(0.0, retry_at - time.monotonic()) if self._waiting else IDLE_SECONDS
            stopping = self._incoming.take(self._waiting, self._lessons.new, pause)
            if self._unbooked.why is not None and time.monotonic() >= self._unbooked.due:
                self._try_again()
            if not self._waiting and self._unbooked.why is None:
                # Let go of a file that was replaced: others that open the new one wait for that.
                with contextlib.suppress(*TROUBLE):  # the next batch meets it, too
                    try:
                        self._file.check()
                    except UnfitError as error:
                        self._stop_writing(error)
            if self._waiting and (stopping or time.monotonic() >= retry_at):
                self._waiting = self._flush(self._waiting)
                failures, retry_at = failures + 1 if self._waiting else 0, 0.0
                if failures:
                    retry_at = time.monotonic() + pause_after(
                        failures, first_seconds=RETRY_SECONDS, seconds_max=RETRY_SECONDS_MAX
                    )
            if self._lessons.new and self._unbooked.why is None:
                self._lessons.store(self._file.connection, self._set_aside)
            self._lessons.new.clear()
            if self._waiting:
                self._resolve(self._waiting, self._trouble.reason)
                # The newest settled rows up to the bound, then open rows up to the bound.
                kept_max = incoming.WAITING_MAX // 2
                if len(self._waiting) > kept_max:
                    settled = [job for job in self._waiting if job.reading is not None]
                    self._drop(settled[:-kept_max])
                    self._waiting = settled[-kept_max:]
        if self._waiting:
            self._leave_behind(self._waiting)  # they stay counted as queued
        try:
            self._file.close()
        except OverwrittenError as error:
            self._stop_writing(error)
        self._unbooked.close()

    def _flush(self, waiting: list[Job]) -> list[Job]:
        """Write the waiting jobs, batch by batch; the jobs that could not be written now."""
        settled = {job.exchange.id for job in waiting if job.reading is not None}
        waiting = [j for j in waiting if j.reading is not None or j.exchange.id not in settled]
        patient_until = time.monotonic() + sqlite_file.BUSY_MS_MAX / 1_000
        while waiting:
            batch = waiting[:COMMIT_ROWS_MAX]
            try:
                self._write(batch)
            except TROUBLE as error:
                is_short = not self._incoming.is_closed and time.monotonic() < patient_until
                if is_short and sqlite_file.is_locked(error):
                    continue
                self._trouble.begin(error)
                return waiting
            except Exception as error:  # noqa: BLE001  # no single row caused it: handled as trouble
                self._set_aside.add("a batch, which is tried again", error)
                self._trouble.begin(error)
                return waiting
            self._trouble.end()
            self._resolve(batch, None)
            for companion in self._companions:
                companion.wake()
            waiting = waiting[COMMIT_ROWS_MAX:]
        return waiting

    def _write(self, batch: list[Job]) -> None:
        """Commit a batch to the ledger, or to the file that the next start books."""
        try:
            if self._unbooked.why is None:
                self._file.check()
                self._batches.write(batch)
                for _ in range(MOVES_MAX):
                    if self._file.is_in_place():
                        break
                    self._file.change()  # the rows went where nobody looks for them
                    self._batches.write(batch)
        except UnfitError as error:
            self._stop_writing(error)
        if self._unbooked.why is not None:
            self._unbooked.write(batch)

    def _stop_writing(self, error: UnfitError) -> None:
        self._unbooked.explain(error, again_at=time.monotonic() + RETRY_SECONDS_MAX)
        self._log("error", f"{self.file}: {self._unbooked.why}")

    def _try_again(self) -> None:
        """Write into the ledger again if its schema takes rows, those of the file first."""
        again_at = time.monotonic() + RETRY_SECONDS_MAX
        try:
            self._file.reopen()
            self._batches.check_schema()
            self._unbooked.close()  # `book` takes files without a writer
            self._batches.node = None
            self._book()
        except (UnfitError, *TROUBLE) as error:
            self._unbooked.explain(UnfitError(str(error)), again_at=again_at)
        else:
            self._unbooked.why = None
            self._log("warning", f"the ledger {self.file} is written again")
        finally:
            self._batches.node = self._claim.node

    def _book(self) -> int:
        """Book the rows that writers have left beside the ledger."""
        booked = 0
        try:
            booked = unwritten.book(self.file, self._batches.write, set_aside=self._set_aside)
        except UnfitError as error:
            if self._unbooked.why is not None:
                raise
            self._log("error", f"{self.file} takes no rows, those beside it stay there: {error}")
        if booked:
            self._log(
                "warning",
                f"{booked} exchanges that could not be written earlier are in the ledger now",
            )
        return booked

    def _leave_behind(self, jobs: list[Job]) -> None:
        """Put what could not be written up to the end into a file that the next start books."""
        try:
            self._unbooked.write(jobs)
        except OSError:
            self._drop(jobs)
            self._waiting = []
        else:
            count = counted(sum(job.reading is not None for job in jobs), "exchange")
            self._log(
                "error",
                f"{count} could not be written ({self._trouble.reason}) and went into "
                f"{self._unbooked.path}: the next start books them",
            )

    def _drop(self, dropped: list[Job]) -> None:
        settled = [job for job in dropped if job.reading is not None]
        reason = self._trouble.reason or "the ledger is closed"
        self._resolve(settled, reason)
        self._trouble.count_dropped(len(settled), reason)

    def _resolve(self, resolved: Sequence[Job], error: str | None) -> None:
        failure = incoming.resolve(resolved, error=error, on_commit=self.on_commit)
        if failure is not None:
            self._trouble.log_throttled(f"the on_commit callback failed: {shown(failure)}")
