"""Files by day, whole or not at all; CSV with the standard library alone, of which pyarrow's own
writer says what is expected of each value."""

import io
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.exports import day_files
from ledger.exports.day_files import csv_file, write
from ledger.model.errors import LedgerError

DAY, NEXT = date(2026, 11, 2), date(2026, 11, 3)
COLUMNS = (("at", "instant"), ("name", "text"), ("cost", "decimal"), ("count", "integer"))
ROWS = [
    (DAY, (datetime(2026, 11, 2, 1, 2, 3, 456789, tzinfo=UTC), "=1+1", Decimal("1E-12"), 1)),
    (DAY, (None, None, None, None)),
    (NEXT, (datetime(2026, 11, 3, tzinfo=UTC), "-x", Decimal(9 * 10**6), 2**63 - 1)),
]


def test_a_parquet_file_for_each_day(tmp_path):
    written = list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
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
    first, second = write(tmp_path, "requests", COLUMNS, ROWS, "csv")
    assert first.path.read_text().splitlines() == [
        '"at","name","cost","count"',
        '"2026-11-02T01:02:03.456789Z","\'=1+1","0.000000000001",1',
        ",,,",
    ]
    assert second.path.read_text().splitlines()[1].split(",")[1] == '"\'-x"'


@pytest.mark.parametrize("form", ["parquet", "csv"])
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
    (written,) = write(tmp_path, "n", (("number", "integer"),), rows, "parquet")
    file = pyarrow.parquet.ParquetFile(written.path)
    assert (written.rows, file.num_row_groups) == (5, 3)
    assert file.read().to_pydict() == {"number": [0, 1, 2, 3, 4]}


def test_an_export_that_breaks_off_leaves_no_file_that_is_cut(tmp_path):
    def rows():
        yield from ROWS[:2]
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        list(write(tmp_path, "requests", COLUMNS, rows(), "parquet"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_doing_it_again_replaces_the_files(tmp_path):
    list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
    list(write(tmp_path, "requests", COLUMNS, ROWS[:1], "parquet"))
    path = tmp_path / "day=2026-11-02" / "requests.parquet"
    assert pyarrow.parquet.ParquetFile(path).metadata.num_rows == 1


def test_without_pyarrow_parquet_is_refused_and_csv_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LedgerError, match=r"tokentee\[parquet\]'; CSV .* --format csv"):
        list(write(tmp_path, "requests", COLUMNS, ROWS, "parquet"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot write .*requests.csv"):
        list(write(tmp_path / "file", "requests", COLUMNS, ROWS, "csv"))


HARMLESS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).filter(
    lambda text: not text.lstrip().startswith(tuple("=+-@"))
)
DRAWN = st.lists(
    st.tuples(
        st.none() | HARMLESS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
DRAWN_COLUMNS = (("a text", "text"), ('"count"', "integer"), ("is", "boolean"))


def written(path, columns, *batches):
    with csv_file(path, columns) as append:
        for rows in batches:
            append(rows)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "rows.csv"


@given(rows=DRAWN)
def test_texts_integers_and_booleans_are_written_as_pyarrow_does(path, rows):
    schema = pa.schema([("a text", pa.string()), ('"count"', pa.int64()), ("is", pa.bool_())])
    arrays = [
        pa.array([row[at] for row in rows], type=field.type) for at, field in enumerate(schema)
    ]
    expected = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(arrays, schema=schema), expected)
    assert written(path, DRAWN_COLUMNS, rows) == expected.getvalue()


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        pytest.param("text", "", '""', id="an-empty-text-is-not-null"),
        pytest.param("text", None, "", id="null"),
        pytest.param("text", 'say "hi", then\ngo', '"say ""hi"", then\\x0ago"', id="quotes-and-line-end"),
        pytest.param("text", "\x1b[2J", '"\\x1b[2J"', id="escape"),
        pytest.param("text", '=HYPERLINK("x")', '"\'=HYPERLINK(""x"")"', id="formula"),
        pytest.param("text", "  -1", "\"'  -1\"", id="formula-after-spaces"),
        pytest.param("text", "\t@x", '"\\x09@x"', id="tab"),
        pytest.param("text", "\u00a0=1", "\"'\u00a0=1\"", id="formula-after-another-space"),
        pytest.param("text", "\uff1d1", "\"'\uff1d1\"", id="full-width-formula"),
        pytest.param("text", "\ud800", '"\\ud800"', id="half-a-character"),
        pytest.param("text", "größer", '"größer"', id="letters-outside-ascii"),
        pytest.param("instant", datetime(2026, 11, 2, 1, 2, 3, tzinfo=UTC), '"2026-11-02T01:02:03.000000Z"', id="instant"),
        pytest.param("instant", datetime(2026, 11, 2, 1, tzinfo=timezone(timedelta(hours=2))), '"2026-11-01T23:00:00.000000Z"', id="instant-elsewhere"),
        pytest.param("second", datetime(2026, 11, 2, 1, 2, 3, 9, tzinfo=UTC), '"2026-11-02T01:02:03Z"', id="second"),
        pytest.param("decimal", Decimal("1E-12"), '"0.000000000001"', id="one-pico"),
        pytest.param("decimal", Decimal("8E+6"), '"8000000.0"', id="whole"),
        pytest.param("decimal", Decimal("0E-12"), '"0.0"', id="zero"),
        pytest.param("decimal", Decimal("-2.50"), '"-2.5"', id="negative"),
    ],
)  # fmt: skip
def test_one_value(path, kind, value, cell):
    assert written(path, (("x", kind),), [(value,)]).decode() == f'"x"\n{cell}\n'


def test_batches_follow_each_other(path):
    assert written(path, (("n", "integer"),), [(1,), (2,)], [(3,)]) == b'"n"\n1\n2\n3\n'


@pytest.mark.large
def test_it_needs_no_pyarrow():
    code = (
        "import sys; sys.modules['pyarrow'] = None; import ledger.exports.export; "
        "from ledger.exports.day_files import write; "
        "from datetime import date; from pathlib import Path; import tempfile; "
        "folder = Path(tempfile.mkdtemp()); "
        "rows = [(date(2026, 11, 2), ('a',))]; "
        "(one,) = write(folder, 'n', (('t', 'text'),), rows, 'csv'); "
        "print(one.path.read_text(), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, '"t"\n"a"\n'), done.stderr


def test_csv_keeps_no_control_character(tmp_path):
    texts = ["\x1b[2J", "plain", None, "\u202e", " =1", "é"]
    rows = [(DAY, (text,)) for text in texts]
    (written,) = write(tmp_path, "n", (("name", "text"),), rows, "csv")
    lines = written.path.read_text().splitlines()
    assert lines == ['"name"', '"\\x1b[2J"', '"plain"', "", '"\\u202e"', '"\' =1"', '"é"']
