"""CSV with the standard library alone. pyarrow's own writer says what is expected of each value."""

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.exports.csv_files import writing

HARMLESS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).filter(
    lambda text: not text.lstrip().startswith(tuple("=+-@"))
)
ROWS = st.lists(
    st.tuples(
        st.none() | HARMLESS,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
COLUMNS = (("a text", "text"), ('"count"', "integer"), ("is", "boolean"))


def written(path, columns, *batches):
    with writing(path, columns) as append:
        for rows in batches:
            append(rows)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "rows.csv"


@given(rows=ROWS)
def test_texts_integers_and_booleans_are_written_as_pyarrow_does(path, rows):
    schema = pa.schema([("a text", pa.string()), ('"count"', pa.int64()), ("is", pa.bool_())])
    arrays = [
        pa.array([row[at] for row in rows], type=field.type) for at, field in enumerate(schema)
    ]
    expected = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(arrays, schema=schema), expected)
    assert written(path, COLUMNS, rows) == expected.getvalue()


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
        "from ledger.exports.day_files import FileFormat, write; "
        "from datetime import date; from pathlib import Path; import tempfile; "
        "folder = Path(tempfile.mkdtemp()); "
        "rows = [(date(2026, 11, 2), ('a',))]; "
        "(one,) = write(folder, 'n', (('t', 'text'),), rows, FileFormat.CSV); "
        "print(one.path.read_text(), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, '"t"\n"a"\n'), done.stderr
