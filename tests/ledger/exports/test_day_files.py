"""Files by day, whole or not at all."""

import os
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.parquet
import pytest

from ledger import exports
from ledger.exports import day_files
from ledger.exports.day_files import FileFormat, write
from ledger.model.errors import LedgerError

DAY, NEXT = date(2026, 11, 2), date(2026, 11, 3)
COLUMNS = (("at", "instant"), ("name", "text"), ("cost", "decimal"), ("count", "integer"))
ROWS = [
    (DAY, (datetime(2026, 11, 2, 1, 2, 3, 456789, tzinfo=UTC), "=1+1", Decimal("1E-12"), 1)),
    (DAY, (None, None, None, None)),
    (NEXT, (datetime(2026, 11, 3, tzinfo=UTC), "-x", Decimal(9 * 10**6), 2**63 - 1)),
]


def test_a_parquet_file_for_each_day(tmp_path):
    written = list(write(tmp_path, "requests", COLUMNS, ROWS, FileFormat.PARQUET))
    assert [(each.path.relative_to(tmp_path).as_posix(), each.rows) for each in written] == [
        ("day=2026-11-02/requests.parquet", 2),
        ("day=2026-11-03/requests.parquet", 1),
    ]
    table = pyarrow.parquet.ParquetFile(written[0].path).read()
    assert table.to_pylist() == [
        {"at": ROWS[0][1][0], "name": "=1+1", "cost": Decimal("0.000000000001"), "count": 1},
        {"at": None, "name": None, "cost": None, "count": None},
    ]


def test_csv_is_safe_in_a_spreadsheet(tmp_path):
    first, second = write(tmp_path, "requests", COLUMNS, ROWS, FileFormat.CSV)
    assert first.path.read_text().splitlines() == [
        '"at","name","cost","count"',
        '"2026-11-02T01:02:03.456789Z","\'=1+1","0.000000000001",1',
        ",,,",
    ]
    assert second.path.read_text().splitlines()[1].split(",")[1] == '"\'-x"'


def test_csv_keeps_no_control_character(tmp_path):
    texts = ["\x1b[2J", "plain", None, "\u202e", " =1", "é"]
    rows = [(DAY, (text,)) for text in texts]
    (written,) = write(tmp_path, "n", (("name", "text"),), rows, FileFormat.CSV)
    lines = written.path.read_text().splitlines()
    assert lines == ['"name"', '"\\x1b[2J"', '"plain"', "", '"\\u202e"', '"\' =1"', '"é"']


@pytest.mark.parametrize("form", list(FileFormat))
def test_nobody_else_reads_an_export(tmp_path, form):
    folder = tmp_path / "out" / "deep"
    old = os.umask(0)
    try:
        (written,) = write(folder, "n", (("number", "integer"),), [(DAY, (1,))], form)
    finally:
        os.umask(old)
    assert written.path.stat().st_mode & 0o777 == 0o600
    for each in (written.path.parent, folder):
        assert each.stat().st_mode & 0o777 == 0o700


def test_more_than_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(day_files, "BATCH_ROWS", 2)
    rows = [(DAY, (number,)) for number in range(5)]
    (written,) = write(tmp_path, "n", (("number", "integer"),), rows, FileFormat.PARQUET)
    file = pyarrow.parquet.ParquetFile(written.path)
    assert (written.rows, file.num_row_groups) == (5, 3)
    assert file.read().to_pydict() == {"number": [0, 1, 2, 3, 4]}


def test_an_export_that_breaks_off_leaves_no_file_that_is_cut(tmp_path):
    def rows():
        yield from ROWS[:2]
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        list(write(tmp_path, "requests", COLUMNS, rows(), FileFormat.PARQUET))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doing_it_again_replaces_the_files(tmp_path):
    list(write(tmp_path, "requests", COLUMNS, ROWS, FileFormat.PARQUET))
    list(write(tmp_path, "requests", COLUMNS, ROWS[:1], FileFormat.PARQUET))
    path = tmp_path / "day=2026-11-02" / "requests.parquet"
    assert pyarrow.parquet.ParquetFile(path).metadata.num_rows == 1


def test_without_pyarrow_parquet_is_refused_and_csv_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "ledger.exports.parquet_files", raising=False)
    monkeypatch.delattr(exports, "parquet_files", raising=False)
    with pytest.raises(LedgerError, match=r"tokentee\[parquet\]'; CSV .* --format csv"):
        list(write(tmp_path, "requests", COLUMNS, ROWS, FileFormat.PARQUET))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot write .*requests.csv"):
        list(write(tmp_path / "file", "requests", COLUMNS, ROWS, FileFormat.CSV))
