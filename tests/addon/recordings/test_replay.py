"""What a replay counts."""

from addon.recordings import replay
from addon.recordings.formats.recorded import Unreadable, Why
from addon.recordings.replay import Tally
from ledger.model.exchange import Outcome


def tally_with(faults: int) -> Tally:
    tally = Tally(new=1, known=2, foreign=3, refused=4)
    tally.skipped[next(iter(Why))] = 5
    tally.by_dialect["openai.chat", Outcome.COMPLETE] = 1
    for number in range(faults):
        tally.add_unreadable(Unreadable(f"line {number}", "no JSON"))
    return tally


def test_the_tallies_of_two_processes_add_up():
    tally = tally_with(1)
    tally.add(tally_with(2))
    assert (tally.new, tally.known, tally.foreign, tally.refused) == (2, 4, 6, 8)
    assert tally.read == 2 + 4 + 6 + 8 + 10
    assert (tally.faults, len(tally.unreadable)) == (3, 3)
    assert tally.by_dialect == {("openai.chat", Outcome.COMPLETE): 2}


def test_all_faults_are_counted_and_the_texts_of_the_first_kept(monkeypatch):
    monkeypatch.setattr(replay, "UNREADABLE_MAX", 5)
    tally = tally_with(4)
    tally.add(tally_with(4))
    assert (tally.faults, len(tally.unreadable)) == (8, 5)
    tally.add(tally_with(1))
    tally.add_unreadable(Unreadable("one more", "no JSON"))
    assert (tally.faults, len(tally.unreadable)) == (10, 5)


def test_a_file_of_another_kind_is_named_and_no_fault():
    tally = Tally()
    tally.add_unreadable(Unreadable("notes.md", "no recording", is_other_kind=True))
    assert (tally.faults, len(tally.unreadable)) == (0, 1)
