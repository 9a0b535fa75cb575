"""Tables of a TOML text, and the lines of what is wrong. Every small file is read with one bound and
refused in the same words."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from addon.run import bill
from addon.run.call import config_file
from ledger.budgets import budgets_file as budget_files
from ledger.model.errors import LedgerError
from ledger.pricing import litellm, overrides
from ledger.reconcile import statement_files
from ledger.settings import names_file, rates_file, small_files
from ledger.settings.toml_tables import (
    FaultError,
    TomlProblem,
    converted,
    fault_of,
    line_in_table,
    line_of_key,
    parse,
    unknown_tables,
)
from ledger.store import secret


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    figure: int = 0


class Kind(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    price: Decimal = Decimal(0)
    inner: list[Inner] = []

    def __post_init__(self):
        if self.name == "bad":
            raise FaultError("name", "it is bad")


def problems(text):
    document, wrong = parse(text)
    assert wrong == []
    return [str(problem) for problem in converted(text, document, "item", Kind)[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[item]]\nname = "x"\nprice = 1.5', []),
        ("item = 1", ["line 1: item: write [[item]] for each"]),
        ("item = [1]", ["line 1: item: write [[item]] for each"]),
        ("[[item]]\nname = 1", ["line 2: item 1: name: not a text but a whole number"]),
        ("[[item]]\nprice = 1.5", ["line 1: item 1: name: missing"]),
        ('[[item]]\nname = "bad"', ["line 2: item 1: name: it is bad"]),
        (
            '[[item]]\nname = "x"\n[[item]]\nnam = "x"',
            ["line 4: item 2: nam: unknown; did you mean 'name'?; one of inner, name, price"],
        ),
        (
            '[[item]]\nname = "x"\n[[item.inner]]\nfigur = 1',
            ["line 4: item 1: inner[0].figur: unknown"],
        ),
        (
            '[[item]]\nname = "x"\n[[item.inner]]\nfigure = "y"',
            ["line 4: item 1: inner[0].figure: not a whole number but a text"],
        ),
        ("item = [{name = 1}]", ["item 1: name: not a text but a whole number"]),
    ],
)
def test_each_problem_has_its_line(text, expected):
    assert problems(text) == expected


def test_figures_are_decimals():
    document, _ = parse('[[item]]\nname = "x"\nprice = 0.1\n')
    ((place, value),), wrong = converted("", document, "item", Kind)
    assert (place, value.price, wrong) == (0, Decimal("0.1"), [])


@pytest.mark.parametrize("text", ["x = ", "x = 1\nx = 2", "a = " + "[" * 100_000])
def test_what_is_not_toml(text):
    document, (problem,) = parse(text)
    assert document == {}
    assert "not TOML" in str(problem)
    assert "\n" not in str(problem)


def test_unknown_keys_of_the_file():
    text = "\nitems = 1\n[other]\n"
    found = [str(each) for each in unknown_tables(text, parse(text)[0], ("item",))]
    assert found == [
        "line 2: items: unknown; did you mean 'item'?; the file has item",
        "line 3: other: unknown; the file has item",
    ]


def test_lines_that_are_not_found():
    assert line_in_table("x = 1", "item", 0, "x") is None
    assert line_in_table("[[item]]\n", "item", 0, "x") == 1
    assert line_of_key("[[item]]\n", "x") is None


def test_a_table_that_is_no_object():
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(1, Kind)
    assert str(fault_of(error.value, Kind)) == "the table: not a table { ... } but a whole number"


def test_nesting_is_bounded():
    inner: dict[str, Any] = {"name": "x"}
    document = {"item": [inner]}
    for _ in range(100_000):
        inner["name"] = [{}]
        inner = inner["name"][0]
    _, (problem,) = converted("[[item]]", document, "item", Kind)
    assert str(problem).startswith("line 1: item 1: name: not a text")


def test_an_exponent_beyond_all_decimals_is_no_figure():
    document, problems = parse("a = 1e99999999999999999999")
    assert problems == []
    assert not document["a"].is_finite()


def test_a_problem_with_a_long_value_stays_one_readable_line():
    problem = TomlProblem(line=3, text="commit: '" + "9" * 10_000 + "' is not known")
    assert len(str(problem)) < 700
    assert str(problem).startswith("line 3: commit: '999")
    assert str(problem).endswith("' is not known")


def test_known_tables_are_no_problem():
    text = "price = 1\ngatewy = 2\nlitellm = 3\n"
    document, _ = parse(text)
    (problem,) = unknown_tables(text, document, ("price", "gateway", "litellm"))
    assert problem.line == 2
    assert problem.text.startswith("gatewy: unknown")
    assert "gateway" in problem.text


READERS = {
    "names file": names_file.check,
    "price file": lambda path: overrides.check(str(path)),
    "LiteLLM price file": litellm.LiteLLM.load,
    "budgets file": lambda path: budget_files.load(str(path)),
    "config file": config_file.check,
    "rates file": lambda path: rates_file.load("EUR", str(path)),
    "file of expected costs": bill.read,
    "statement": lambda path: statement_files.load(str(path), provider=None),
    "secret of key fingerprints": secret._read,
}
LIMITS = {
    "LiteLLM price file": litellm.FILE_BYTES_MAX,
    "statement": statement_files.FILE_BYTES_MAX,
    "secret of key fingerprints": secret.FILE_BYTES_MAX,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, kind):
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", "embedded null byte"),
    ):
        with pytest.raises(LedgerError) as raised:
            READERS[kind](path)
        assert str(raised.value) == f"cannot read the {kind} {path}: {reason}"


@pytest.mark.parametrize("kind", READERS)
def test_a_file_beyond_the_bound_is_refused_and_no_more_of_it_is_read(tmp_path, kind, noted):
    asked = noted(small_files, "first_bytes")
    limit = LIMITS.get(kind, small_files.FILE_BYTES_MAX)
    path = tmp_path / "dump"
    with path.open("wb") as file:
        file.truncate(limit + 1)
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit} bytes"
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: it is larger than {size}; ")
    assert [bytes_max for _, bytes_max in asked] == [limit + 1]


@pytest.mark.parametrize("kind", [each for each in READERS if each != "LiteLLM price file"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_place(tmp_path, kind):
    path = tmp_path / "image"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: not UTF-8 text at byte 0; ")


def test_a_file_as_large_as_the_bound_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert small_files.read_text(path, "file", bytes_max=5) == "12345"
    with pytest.raises(LedgerError, match="larger than 4 bytes; shorten it"):
        small_files.read_bytes(path, "file", bytes_max=4, advice="shorten it")
    assert small_files.first_bytes(path, 2) == b"12"
