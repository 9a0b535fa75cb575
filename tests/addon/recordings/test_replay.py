"""What a replay counts, and how it hands exchanges to the writer."""

from typing import cast

from addon.metering.opening import RunRules
from addon.metering.settlement import Settled
from addon.recordings import files, metered, replay
from addon.recordings.archives import ArchiveFile, ArchivePart
from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded, Unreadable, Why
from addon.recordings.replay import ReplayJob, ReplayTally
from ledger.model.exchange import Exchange, Outcome
from ledger.model.reading import Reading
from ledger.pricing.prices import PriceBook
from ledger.store.writing.jobs import Commits, Receipt
from ledger.store.writing.writer import Ledger
from tests.addon.telemetry.made import exchange, reading
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
    one = replay.Replay(cast(Ledger, ledger), node="test", commits=commits, lookup=lambda _ids: {})
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
    monkeypatch.setattr(metered, "PIECE_BYTES", 7)
    assert metered_now() == whole
