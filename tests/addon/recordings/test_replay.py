"""What a replay counts, how it hands exchanges to the writer, how several processes read, and which
files there are in archives."""

import concurrent.futures
import gc
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, cast

import fsspec
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from addon.metering.opening import RunRules
from addon.metering.settlement import Settled
from addon.recordings import files, metered, replay
from addon.recordings.files import ArchiveFile, ArchivePart, read
from addon.recordings.formats.recorded import Recorded, Unreadable, Why
from addon.recordings.replay import ReplayJob, ReplayTally, replay_here, replay_with
from ledger import recording
from ledger.maintenance import rollup
from ledger.model.errors import LedgerError
from ledger.model.exchange import Exchange, Outcome, Reading
from ledger.pricing.prices import PriceBook
from ledger.store import db
from ledger.store.tables import exchanges, meta, sums
from ledger.store.writing.incoming import Commits, Receipt
from ledger.store.writing.writer import Ledger
from tests.addon.parts.telemetry.made import exchange, reading
from tests.addon.recordings.recorded_files import as_captures
from tests.bench import recordings


def tally_with(faults: int) -> ReplayTally:
    tally = ReplayTally(new=1, known=2, foreign=3, refused=4)
    tally.skipped[next(iter(Why))] = 5
    tally.by_dialect["openai.chat", Outcome.COMPLETE] = 1
    for number in range(faults):
        tally.add_unread(Unreadable(f"line {number}", "no JSON"))
    return tally


def test_the_tallies_of_two_processes_add_up():
    tally = tally_with(1)
    tally.add(tally_with(2))
    assert (tally.new, tally.known, tally.foreign, tally.refused) == (2, 4, 6, 8)
    assert tally.read == 2 + 4 + 6 + 8 + 10
    assert (tally.faults, len(tally.unreadable)) == (3, 3)
    assert tally.by_dialect == {("openai.chat", Outcome.COMPLETE): 2}


def test_all_faults_are_counted_and_the_texts_of_the_first_kept(monkeypatch):
    monkeypatch.setattr(files, "UNREADABLE_MAX", 5)
    monkeypatch.setattr(replay, "UNREADABLE_MAX", 5)
    tally = tally_with(4)
    tally.add(tally_with(4))
    assert (tally.faults, len(tally.unreadable)) == (8, 5)
    tally.add(tally_with(1))
    tally.add_unread(Unreadable("one more", "no JSON"))
    assert (tally.faults, len(tally.unreadable)) == (10, 5)


def test_a_file_of_another_kind_is_named_and_no_fault():
    tally = ReplayTally()
    tally.add_unread(Unreadable("notes.md", "no recording", is_other_kind=True))
    assert (tally.faults, len(tally.unreadable)) == (0, 1)


def test_prices_are_loaded_once_and_for_the_first_exchange_that_is_new(monkeypatch):
    """With the lists that were read later than the installed one, as live traffic has them."""
    loaded: list[str | None] = []

    def load(path: str | None) -> PriceBook:
        loaded.append(path)
        return PriceBook()

    monkeypatch.setattr(PriceBook, "load", load)
    price = replay._price_of(ReplayJob(ledger_url="", url=None, prices=None))
    assert loaded == []
    for _ in range(2):
        price(exchange(), reading())
    assert loaded == [None]


class _NotedLedger:
    """Notes when an exchange is queued, and commits it at once."""

    def __init__(self, events: list[str], commits: Commits) -> None:
        self._events = events
        self._commits = commits

    secret = b""

    def settle(self, exchange: Exchange, _reading: Reading) -> Receipt:
        self._events.append("queued")
        receipt = Receipt(exchange.id)
        receipt.committed = True
        self._commits.on_commit([receipt])
        return receipt


def test_a_batch_is_metered_before_any_of_it_is_queued(tmp_path, monkeypatch):
    """The writer writes what it finds: exchanges that come one by one make many small commits."""
    path = tmp_path / "captures.jsonl"
    recordings.write(path, recordings.shorts(7))
    events: list[str] = []
    monkeypatch.setattr(replay, "BATCH_MAX", 3)

    meter = metered.meter

    def noted(item: Recorded, rules: RunRules) -> list[Settled] | None:
        events.append("metered")
        return meter(item, rules)

    monkeypatch.setattr(metered, "meter", noted)
    commits = Commits()
    ledger = _NotedLedger(events, commits)
    one = replay.Replay(
        ledger=cast(Ledger, ledger), node="test", commits=commits, lookup=lambda _ids: {}
    )
    one.read(ArchivePart(file=ArchiveFile.local(path)))
    one.collect(0)
    batch = ["metered"] * 3 + ["queued"] * 3
    assert events == [*batch, *batch, "metered", "queued"]
    assert one.tally.new == 7


def test_a_recorded_answer_is_read_the_same_in_any_pieces(tmp_path, monkeypatch):
    path = tmp_path / "captures.jsonl"
    recordings.write(path, recordings.shorts(2))
    items = [item for item in read(path, url=None) if isinstance(item, Recorded)]

    def metered_now() -> list[tuple[object, ...]]:
        found = [one for item in items for one in metered.meter(item, RunRules(node="n")) or ()]
        return [(one.exchange.upstream_digest, one.reading.usage) for one in found]

    whole = metered_now()
    assert len(whole) == len(items) == 2
    monkeypatch.setattr(metered, "TAP_BYTES", 7)
    assert metered_now() == whole


def test_a_replay_looks_for_garbage_seldom_and_never_among_what_was_loaded(tmp_path: Path):
    seen = []
    gc.unfreeze()
    before = gc.get_threshold()
    job = ReplayJob(ledger_url=f"sqlite:///{tmp_path / 'a.db'}", url=None, prices=None)
    tally = replay_here(
        job,
        [as_captures(tmp_path)],
        log=lambda *_: None,
        advance=lambda *_: seen.append((gc.get_threshold()[0], gc.get_freeze_count())),
    )
    assert tally.new > 0
    assert {young for young, _ in seen} == {recording.YOUNG_OBJECTS_MAX}
    assert all(frozen > 10_000 for _, frozen in seen)
    assert gc.get_threshold() == before


class _Pool:
    """Runs what it is given at once, in this process."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.workers = 0
        self.parts: list[ArchivePart] = []
        self._failure = failure

    def __call__(
        self, workers: int, *, initializer: Any, initargs: tuple[object], **_: object
    ) -> Self:
        self.workers = workers
        initializer(*initargs)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(
        self, function: Callable[..., object], job: ReplayJob, parts: list[ArchivePart]
    ) -> Future[Any]:
        self.parts += parts
        future: Future[Any] = Future()
        if self._failure is None:
            future.set_result(function(job, parts))
        else:
            future.set_exception(self._failure)
        return future


@pytest.fixture
def shared_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that all processes read."""
    monkeypatch.setattr(replay, "PART_BYTES", 1)
    monkeypatch.setattr(replay, "_read_bytes", None)
    path = tmp_path / "captures.jsonl"
    recordings.write(path, recordings.shorts(9))
    return path


def test_the_process_that_starts_the_others_reads_a_share(shared_file: Path, monkeypatch):
    pool = _Pool()
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", pool)
    shown = []
    job = ReplayJob(ledger_url=f"sqlite:///{shared_file.with_suffix('.db')}", url=None, prices=None)
    tally = replay_with(
        3,
        job,
        [shared_file],
        log=lambda *_: None,
        advance=lambda read_bytes, _: shown.append(read_bytes),
    )
    assert pool.workers == 2
    assert sorted(part.part for part in pool.parts) == [1, 2]
    assert (tally.new, tally.known) == (9, 0)
    # The others' shares are in it. Each ends with its own last entry, not with the file's.
    assert 0.8 <= shown[-1] / shared_file.stat().st_size <= 1
    assert shown == sorted(shown)


def test_an_error_of_another_process_ends_the_replay(shared_file: Path, monkeypatch):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", _Pool(LedgerError("no room")))
    job = ReplayJob(ledger_url=f"sqlite:///{shared_file.with_suffix('.db')}", url=None, prices=None)
    with pytest.raises(LedgerError, match="no room"):
        replay_with(2, job, [shared_file], log=lambda *_: None, advance=lambda *_: None)


@pytest.mark.process
def test_processes_leave_the_sums_to_the_one_that_started_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = []

    def count(engine: Engine, **_: object) -> None:
        with engine.connect() as connection:
            rows = connection.scalar(sa.select(sa.func.count()).select_from(exchanges))
            days = connection.scalar(sa.select(sa.func.count()).select_from(sums))
            end = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "rolled_until"))
        found.append((rows, days, end))

    url = f"sqlite:///{tmp_path / 'a.db'}"
    job = ReplayJob(ledger_url=url, url=None, prices=None)
    # The processes are started anew and do not have the patch.
    with monkeypatch.context() as patched:
        patched.setattr(rollup, "roll", count)
        patched.setattr(replay, "PART_BYTES", 1)
        tally = replay_with(
            2, job, [as_captures(tmp_path)], log=lambda *_: None, advance=lambda *_: None
        )
    assert tally.new > 0
    assert found == [(tally.new, 0, None)]
    replay_with(1, job, [as_captures(tmp_path)], log=lambda *_: None, advance=lambda *_: None)
    engine = db.open_existing(url)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(sums))
    engine.dispose()


@pytest.fixture
def memory():
    """An object store in this process."""
    system = fsspec.filesystem("memory")
    system.pipe("/archive/a.jsonl", b"1")
    system.pipe("/archive/b.har", b"22")
    system.pipe("/archive/notes.md", b"333")
    yield system
    system.rm("/archive", recursive=True)


@pytest.mark.usefixtures("memory")
def test_the_recordings_of_a_folder_and_of_a_glob():
    def found(*names):
        return [(file.name, file.size) for file in files.files_in(names, bodies_too=False)]

    in_folder = [("memory:///archive/a.jsonl", 1), ("memory:///archive/b.har", 2)]
    assert found("memory://archive") == in_folder
    assert found("memory://archive/*.har") == in_folder[1:]
    assert found("memory://archive", "memory://archive/a.jsonl") == in_folder


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("url", ["memory://nowhere", "memory://archive/*.gz", "nosuch://x"])
def test_what_is_not_there_is_one_line(url):
    with pytest.raises(LedgerError, match=url.partition(":")[0]):
        files.files_in([url], bodies_too=False)


@pytest.mark.usefixtures("memory")
def test_a_copy_has_the_time_of_its_original_and_goes_afterwards(tmp_path):
    """The time stands for the start of exchanges that were recorded without one."""
    (file,) = files.files_in(["memory://archive/a.jsonl"], bodies_too=False)
    assert not file.is_local
    file = ArchiveFile(name=file.name, size=file.size, modified_at=1_700_000_000.0)
    with files.on_this_machine(file, tmp_path) as copy:
        assert copy.read_bytes() == b"1"
        assert copy.stat().st_mtime == 1_700_000_000.0
    assert not copy.exists()


def test_a_local_file_is_read_where_it_lies(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1")
    (file,) = files.files_in([str(path)], bodies_too=False)
    assert file.is_local
    with files.on_this_machine(file, tmp_path / "unused") as found:
        assert found == path
    assert path.exists()
