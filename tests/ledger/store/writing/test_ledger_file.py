"""The WAL of a ledger: a reader that does not end is named, and its room is given back."""

from pathlib import Path

from ledger.store import db
from ledger.store.writing import ledger_file
from tests.ledger.written import settled, writing


def test_a_reader_that_does_not_end_is_said_once_and_the_wal_shrinks_after_it(
    new_sqlite, monkeypatch
):
    monkeypatch.setattr(ledger_file, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(ledger_file, "WAL_KEPT_BYTES_MAX", 100_000)
    monkeypatch.setattr(ledger_file, "WAL_WARNED_BYTES", 300_000)
    monkeypatch.setattr(ledger_file, "CHECK_SECONDS", 0.0)
    url = new_sqlite()
    wal = Path(f"{url.removeprefix('sqlite:///')}-wal")
    engine = db.open_engine(url)
    with writing(url) as written:

        def said() -> int:
            return sum("a reader that does not end" in line for line in written.lines("warning"))

        number = 0
        for lengthy in (1, 2):
            with engine.connect() as reader:
                # Its snapshot keeps checkpoints from emptying the WAL.
                reader.exec_driver_sql("SELECT * FROM exchanges").all()
                while said() < lengthy:
                    number += 1
                    assert number < 1_000, wal.stat().st_size
                    assert written.settle(settled(f"a{number}")).committed
                for _ in range(10):
                    number += 1
                    assert written.settle(settled(f"a{number}")).committed
            assert wal.stat().st_size > 300_000
            assert said() == lengthy
            for _ in range(30):
                number += 1
                assert written.settle(settled(f"a{number}")).committed
            assert wal.stat().st_size <= 200_000
    engine.dispose()
