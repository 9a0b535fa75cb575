"""Items that are set aside."""

import json

from ledger.store.processes import set_aside
from ledger.store.processes.set_aside import SetAside


class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")


def test_items_are_kept_where_they_can_be_looked_at(tmp_path):
    said = []
    path = tmp_path / "set-aside.jsonl"
    aside = SetAside(path, log=lambda *line: said.append(line))
    for item in ("\ud800", Odd(), "x" * 10_000):
        aside.add(item, ValueError("odd \ud800"))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["item"][:4] for each in found] == ["'\\ud", "Odd ", "'xxx"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert aside.count == 3
    assert len(said) == 1


def test_the_file_is_bounded_and_a_file_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(set_aside, "KEPT_BYTES_MAX", 500)
    path = tmp_path / "set-aside.jsonl"
    aside = SetAside(path, log=lambda *_: None)
    for _ in range(100):
        aside.add("item", ValueError("odd"))
    assert path.stat().st_size < 1_000
    assert aside.count == 100
    for nowhere in (None, tmp_path / "nowhere" / "file"):
        aside = SetAside(nowhere, log=lambda *_: None)
        aside.add("item", ValueError("odd"))
        assert aside.count == 1
