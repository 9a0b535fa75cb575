"""Database. Turns jobs into rows, and commits the rows as one batch.

A row that cannot be written is tried alone, then without its charges, and is set aside if that
fails too; the rest of its batch is written. If `write` raises, no row is at fault: the whole batch
is retried later. Whether a row is at fault, a plain exchange of the same origin shows, which is
written and taken back: if that is refused as well, the schema is at fault (`UnfitError`).

A failure names no model, so it would stand under the name that was asked for, and the answers under
a snapshot of it. Its row is given the model that last answered the name at that provider, from its
begin on: if this process is killed, nobody else can. What is asked for and what answered have to be
the same model (`model/aliases.py`): nobody knows which one a router would have chosen.

A result that is fetched after its first part broke off, or was ordered only, is a further reading
of that part's row: of the same origin, response id, key and model, without figures that are final.
"""

import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import batched

import orjson
from msgspec.structs import replace

from ledger.model import door
from ledger.model.aliases import NAMES_MAX, is_another, is_router
from ledger.model.charge import Charge, remarked
from ledger.model.exchange import (
    FETCHED,
    NO_METER,
    SESSION_OPERATIONS,
    Exchange,
    Outcome,
    Reading,
    Source,
    State,
    UsageSource,
)
from ledger.store.engines import sqlite_file
from ledger.store.keys import instant_text
from ledger.store.processes.supervision import SetAside, shown
from ledger.store.writing import batch_insert, running_totals
from ledger.store.writing.incoming import LATE, Job
from ledger.store.writing.ledger_file import LedgerFile
from ledger.store.writing.unwritten import Trouble, UnfitError, is_of_statement, is_trouble

type Price = Callable[[Exchange, Reading], tuple[Charge, ...]]
type Resolve = Callable[[Sequence[Job], str | None], None]

WAITED_SECONDS = 0.5
"""A batch with a receipt that has waited longer first waits for the file, and then looks whose end
has gone on: a settled row does not change any more. The wait for the file (`BUSY_MS_MAX`) and this
are together less than an answer's end waits, so no other row's end goes on during its statement
unless the commit itself takes seconds, which the log reports."""
_MOMENTS = (
    "SELECT e.id, e.opened_at FROM json_each(?) AS wanted JOIN exchanges e ON e.id = wanted.value"
)
_FIRST_PART = """
SELECT e.id, e.opened_at, e.state, e.outcome, e.response_model,
  r.revision, r.usage_source, r.usage_json, r.reason
FROM exchanges e JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id
WHERE e.response_id = ? AND e.origin = ? AND e.key_fingerprint IS ? AND e.id <> ?
  AND e.duplicate_of IS NULL AND NOT e.id_unstable
  AND (e.request_digest IS NOT NULL OR e.upstream_digest IS NOT NULL)
ORDER BY e.opened_at DESC, r.revision DESC LIMIT 1
"""

SEARCHED_ROWS = 10_000
"""Of the newest exchanges in the ledger, for a name that this process has seen no answer of: some
10 ms."""
SEARCH_AGAIN_SECONDS = 10.0
_ANSWERED = (
    "SELECT response_model FROM (SELECT provider, request_model, response_model FROM exchanges "
    "ORDER BY opened_at DESC LIMIT ?) WHERE provider = ? AND request_model = ? "
    "AND response_model <> '' LIMIT 1"
)

PLAIN = Exchange(
    id="check",
    origin="check",
    provider="check",
    dialect="check",
    operation="check",
    path="check",
    opened_at=datetime(2020, 1, 1, tzinfo=UTC),
)


class Batches:
    """Writes batches of jobs to a file."""

    def __init__(
        self,
        file: LedgerFile,
        *,
        price: Price | None,
        trouble: Trouble,
        set_aside: SetAside,
        resolve: Resolve,
    ) -> None:
        self.node: str | None = None
        """Whose live rows are written; None: of processes that are gone."""
        self._file = file
        self._meant = MeantModels()
        self._price = price
        self._trouble = trouble
        self._set_aside = set_aside
        self._resolve = resolve
        self._refused_last = PLAIN

    def write(self, batch: Sequence[Job]) -> None:
        """Commit a batch. Refused jobs are left out and resolved here. UnfitError: the schema takes
        no row."""
        try:
            self._write(batch)
        except sqlite3.Error as error:
            if not is_of_statement(error):
                raise
            raise UnfitError(str(error)) from error  # of a query, which has no row

    def check_schema(self) -> None:
        """UnfitError if the ledger refuses a plain exchange, of the origin refused last."""
        now, plain = datetime.now(UTC), self._refused_last
        exchange = Exchange(
            id=f"check.{secrets.token_hex(8)}",
            origin=plain.origin,
            provider=plain.provider,
            dialect=plain.dialect,
            operation=plain.operation,
            path=plain.path,
            opened_at=now,
            state=State.SETTLED,
            outcome=Outcome.COMPLETE,
            settled_at=now,
        )
        reading = Reading(
            exchange_id=exchange.id,
            opened_at=now,
            meter_version=NO_METER,
            usage_source=UsageSource.NONE,
            read_at=now,
        )
        connection = self._file.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._execute([batch_insert.settled_row(exchange, reading, (), None)])
        except sqlite3.Error as error:
            if is_trouble(error):
                raise
            raise UnfitError(str(error)) from error
        finally:
            connection.rollback()

    def _write(self, batch: Sequence[Job]) -> None:
        new = [job for job in batch if job.row is None and not job.is_refused]
        self._each(new, _admit)
        if sessions := [job for job in new if _states_a_session(job)]:
            new = [job for job in new if not _states_a_session(job)]
            with sqlite_file.writing(self._file.connection):
                self._each(sessions, self._book)
                of_session: dict[tuple[str | None, ...], list[Job]] = {}
                for job in sessions:
                    one = job.exchange
                    name = one.session_id, one.origin, one.dialect
                    of_session.setdefault(name, []).append(job)
                for jobs in of_session.values():
                    self._settle_session(jobs)
        recorded = [job for job in new if job.reading and job.exchange.source is not Source.LIVE]
        for job in recorded:
            self._join_first_part(job, batch)
        if recorded:
            # Recorded exchanges get the `opened_at` that they already have in the ledger or the
            # batch: a recording that rounds times must not add a second row.
            ids = orjson.dumps([job.exchange.id for job in recorded]).decode()
            found = self._file.connection.execute(_MOMENTS, (ids,))
            moments = {name: datetime.fromisoformat(opened_at) for name, opened_at in found}
            for job in batch:
                if job.exchange.source is Source.LIVE:
                    moments.setdefault(job.exchange.id, job.exchange.opened_at)
            for job in recorded:
                opened_at = moments.setdefault(job.exchange.id, job.exchange.opened_at)
                if opened_at != job.exchange.opened_at and job.reading is not None:
                    job.exchange = replace(job.exchange, opened_at=opened_at)
                    job.reading = replace(job.reading, opened_at=opened_at)
        for job in new:
            self._meant.learn(job.exchange)
        self._each(new, self._prepare)
        jobs = [job for job in batch if job.row is not None]
        if jobs:
            self._commit(jobs)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Commit the rows of these jobs, or those of each statement, or each alone."""
        try:
            self._execute_all(jobs)
        except Exception as error:  # the type of the error for a bad row is not known
            if is_trouble(error):
                raise
            if len(jobs) > batch_insert.ROWS_MAX:
                for part in batched(jobs, batch_insert.ROWS_MAX):
                    self._commit(part)
                return
            for job in jobs:
                self._write_alone(job)

    def _join_first_part(self, job: Job, batch: Sequence[Job]) -> None:
        """Make a fetched result the further reading of the row that it completes, if there is one:
        in the ledger, or earlier in the batch."""
        exchange, reading = job.exchange, job.reading
        assert reading is not None
        if (
            exchange.source is not Source.REPLAY
            or exchange.response_id is None
            or exchange.request_digest is not None
            or exchange.upstream_digest is not None
            or reading.usage_source is not UsageSource.REPORTED
        ):
            return
        name = exchange.response_id, exchange.origin, exchange.key_fingerprint
        found = self._file.connection.execute(_FIRST_PART, (*name, exchange.id)).fetchone()
        for other in batch[: batch.index(job)]:
            first, read = other.exchange, other.reading
            its_name = first.response_id, first.origin, first.key_fingerprint
            if read is not None and its_name == name and first.upstream_digest is not None:
                found = (
                    *(first.id, instant_text(first.opened_at), first.state, first.outcome),
                    *(first.response_model, read.revision, read.usage_source),
                    *(read.usage_json, read.reason),
                )
        if found is None:
            return
        id_, opened_at, state, outcome, model, revision, source, usage_json, reason = found
        is_again = reason == FETCHED and usage_json == reading.usage_json
        if model not in (None, exchange.response_model) or (
            source == UsageSource.REPORTED and not is_again
        ):
            return
        moment = datetime.fromisoformat(opened_at)
        # A settled row stays as it is, a reading of a revision that is there is not added.
        job.exchange = replace(
            exchange, id=id_, opened_at=moment, state=State(state), outcome=Outcome(outcome)
        )
        job.reading = replace(
            reading,
            exchange_id=id_,
            opened_at=moment,
            revision=revision if is_again else max(revision, 1) + 1,
            reason=FETCHED,
        )

    def _book(self, job: Job) -> None:
        """Write a statement of a hosted agent's session."""
        assert job.reading is not None, "it has no open row"
        connection = self._file.connection
        connection.execute("SAVEPOINT statement")
        try:
            row = running_totals.book(connection, job.exchange, job.reading)
            if row is not None:
                self._prepare(statement := Job(*row))
                self._execute([statement.row] if statement.row else [])
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO statement")
            raise
        connection.execute("RELEASE statement")

    def _settle_session(self, jobs: Sequence[Job]) -> None:
        """Book the rows of a session anew, each as far as it counts beside the others."""
        price, connection = self._price or (lambda *_: ()), self._file.connection
        of, read = jobs[-1].exchange, jobs[-1].reading
        assert read is not None, "it has no open row"
        since = min(running_totals.moment_of(job.exchange) for job in jobs)
        try:
            running_totals.settle(connection, of, since, price, read.read_at)
        except Exception as error:
            if is_of_statement(error) or is_trouble(error):
                raise
            session = of.session_id
            self._trouble.log_throttled(f"totals of session {session} overlap: {shown(error)}")

    def _each(self, jobs: list[Job], step: Callable[[Job], None]) -> None:
        """Apply a step to each job; a job for which it fails is refused and leaves the list."""
        refused = []
        for job in jobs:
            try:
                step(job)
            except Exception as error:  # one bad row must not end the writer for all
                if is_of_statement(error) or is_trouble(error):
                    raise
                refused.append(job)
                self._refuse(job, error)
        if refused:
            jobs[:] = [job for job in jobs if job not in refused]

    def _execute_all(self, jobs: Sequence[Job]) -> None:
        """Commit the rows of these jobs; each row says if its end has gone on."""
        rows = [job.row for job in jobs if job.row]
        waited = time.monotonic() - WAITED_SECONDS
        has_waited = any(job.receipt and job.receipt.since <= waited for job in jobs)
        if not has_waited and len(rows) <= batch_insert.ROWS_MAX:
            self._execute(rows)  # one statement, which is its own transaction
            return
        with sqlite_file.writing(self._file.connection):
            for job in jobs:
                if job.row is not None and job.receipt is not None and job.receipt.is_let_go:
                    batch_insert.note(job.row, LATE)
            self._execute(rows)

    def _execute(self, rows: Sequence[batch_insert.Row]) -> None:
        # The earliest first: of many equal exchanges that end in reverse order, the first of a
        # batch becomes the one that counts, and the others need to be linked once.
        ordered = sorted(rows, key=batch_insert.opened_at_of)
        for part in batched(ordered, batch_insert.ROWS_MAX):
            self._file.connection.execute(*batch_insert.statement(part))

    def _write_alone(self, job: Job) -> None:
        """Write one row of a batch that was refused: as it is, or without its charges."""
        assert job.row is not None
        refusal: Exception | None = None
        for row in (job.row, batch_insert.uncharged(job.row)):
            try:
                self._execute([row])
            except Exception as error:  # set aside, unless it is `Trouble`
                if is_trouble(error):
                    raise
                refusal = refusal or error
            else:
                if refusal:
                    self._trouble.log_throttled(
                        f"exchange {job.exchange.id} is recorded unpriced: {refusal}"
                    )
                return
        assert refusal is not None
        if isinstance(refusal, sqlite3.Error):
            self._refused_last, _ = door.admitted(job.exchange, None)
            self.check_schema()
        self._refuse(job, refusal)

    def _prepare(self, job: Job) -> None:
        exchange, reading = self._meant.named(job.exchange, self._file.connection), job.reading
        if reading is None:
            job.row = batch_insert.open_row(exchange, self.node)
        else:
            lines: tuple[Charge, ...] = ()
            try:
                if self._price is not None:
                    lines = self._price(exchange, reading)
            except Exception as error:  # noqa: BLE001  # an unpriced row is better than none
                self._trouble.log_throttled(f"exchange {exchange.id} is not priced: {shown(error)}")
            reading = remarked(reading, lines)
            node = self.node if exchange.source is Source.LIVE else None
            job.row = batch_insert.settled_row(exchange, reading, lines, node)

    def _refuse(self, job: Job, error: Exception) -> None:
        """Set aside an exchange for which every write fails."""
        job.row, job.is_refused = None, True
        self._set_aside.add((job.exchange, job.reading), error)
        if job.reading is not None:
            why = f"the ledger refuses it: {shown(error)}"
            self._resolve([job], why)
            self._trouble.count_dropped(1, f"exchange {job.exchange.id}: {why}")


def _states_a_session(job: Job) -> bool:
    """Whether it states what a session of a hosted agent used; a refused request states nothing."""
    exchange = job.exchange
    return exchange.operation in SESSION_OPERATIONS and exchange.outcome is Outcome.COMPLETE


def _admit(job: Job) -> None:
    job.exchange, job.reading = door.admitted(job.exchange, job.reading)


type _Name = tuple[str, str | None]
"""A provider, and what was asked for."""


class MeantModels:
    """What names stand for, as far as this process knows."""

    def __init__(self) -> None:
        self._models: dict[_Name, str] = {}
        self._searched: dict[_Name, float] = {}
        """Names that no model of the ledger answered -> when it was searched, monotonic."""

    def learn(self, exchange: Exchange) -> None:
        """Remember which model answered."""
        if exchange.response_model:
            name = exchange.provider, exchange.request_model
            if self._models.get(name) != exchange.response_model:
                self._remember(name, exchange.response_model)

    def named(self, exchange: Exchange, connection: sqlite3.Connection) -> Exchange:
        """The exchange; if no model has answered it, with the one that was meant."""
        if exchange.response_model or exchange.outcome is Outcome.COMPLETE:
            return exchange
        name, now = (exchange.provider, exchange.request_model), time.monotonic()
        if (
            name[1]
            and name not in self._models
            and now - self._searched.get(name, -SEARCH_AGAIN_SECONDS) >= SEARCH_AGAIN_SECONDS
        ):
            _put(self._searched, name, now)
            for (model,) in connection.execute(_ANSWERED, (SEARCHED_ROWS, *name)):
                self._remember(name, model)
        meant = self._models.get(name)
        if meant in (None, exchange.request_model):
            return exchange
        return replace(exchange, meant_model=meant)

    def _remember(self, name: _Name, model: str) -> None:
        if name[1] and not is_router(name[1]) and not is_another(*name, model):
            _put(self._models, name, model)


def _put[V](names: dict[_Name, V], name: _Name, value: V) -> None:
    """In place of the oldest name if there are too many: clients invent them."""
    names.pop(name, None)
    names[name] = value
    if len(names) > NAMES_MAX:
        del names[next(iter(names))]
