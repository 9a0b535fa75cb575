"""Tables as text: exact for machines, harmless everywhere."""

import csv
import io
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ledger.reports.render import (
    Column,
    Table,
    as_csv,
    as_json,
    as_markdown,
    print_table,
    printable,
    short_count,
    short_usd,
    usd,
)

TABLE = Table(
    columns=(
        Column(name="model", heading="Model", is_number=False),
        Column(name="cost_usd", heading="Cost", drop=1),
        Column(name="known", heading="Known", is_number=False, drop=2),
    ),
    rows=(("gpt-5", Decimal("0.0125"), True), (None, None, False)),
    total=("Total", Decimal("0.0125"), None),
)


def table_of(*cells):
    columns = tuple(Column(name=f"c{place}", heading=f"C{place}") for place in range(len(cells)))
    return Table(columns=columns, rows=(cells,))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpt-5", "gpt-5"),
        ("größe 模型", "größe 模型"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\r\nb\tc\x00", "a\\x0d\\x0ab\\x09c\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egpj.exe", "abc\\x202egpj.exe"),
        ("zero\u200bwidth\ufeff", "zero\\x200bwidth\\xfeff"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_by_its_code(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_printable_text_has_no_controls(text):
    assert all(character >= " " and character != "\x7f" for character in printable(text))


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\t=1", "\\x09=1"),
        ("a,b", "a,b"),
        ('say "x"', 'say "x"'),
    ],
)
def test_a_spreadsheet_gets_no_formulas(text, cell):
    (_, row) = csv.reader(io.StringIO(as_csv(table_of(text))))
    assert row == [cell]


def test_csv_keeps_numbers_and_nulls():
    assert as_csv(table_of(-5, Decimal("-0.50"), None, False, 0)) == (
        "c0,c1,c2,c3,c4\n-5,-0.50,,false,0\n"
    )


def test_csv_has_no_total_to_be_summed_twice():
    assert as_csv(TABLE).count("0.0125") == 1


def test_markdown():
    assert as_markdown(TABLE) == (
        "| Model | Cost | Known |\n"
        "| --- | ---: | --- |\n"
        "| gpt-5 | 0.0125 | yes |\n"
        "|  |  | no |\n"
        "| **Total** | **0.0125** |  |\n"
    )


def test_markdown_gets_no_markup():
    assert as_markdown(table_of("a|b*c*<img src=x>\n[l](u)")).splitlines()[2] == (
        "| a\\|b\\*c\\*\\<img src=x\\>\\\\x0a\\[l\\](u) |"
    )


def test_json_is_exact_and_ascii():
    text = as_json({"cost": Decimal("0.000000000001"), "rows": [1, None, True, "é\x1b"], "no": []})
    assert text == (
        '{\n  "cost": 0.000000000001,\n  "rows": [\n    1,\n    null,\n    true,\n'
        '    "\\u00e9\\u001b"\n  ],\n  "no": []\n}\n'
    )
    assert as_json({}) == "{}\n"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_reads_back(value):
    assert json.loads(as_json(value)) == value


def lines_of(table, width):
    console = Console(file=io.StringIO(), width=width)
    print_table(table, console)
    return [line.strip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_table_on_a_terminal():
    head, _, first, second, total = lines_of(TABLE, 80)
    assert head.split() == ["Model", "Cost", "Known"]
    assert first.split() == ["gpt-5", "0.0125", "yes"]
    assert second.split() == ["no"]
    assert total.split() == ["Total", "0.0125"]


@pytest.mark.parametrize(("width", "headings"), [(20, ["Model", "Cost"]), (10, ["Model"])])
def test_a_narrow_terminal_gets_fewer_columns(width, headings):
    assert lines_of(TABLE, width)[0].split() == headings


def test_text_from_the_wire_is_no_markup():
    row = lines_of(table_of("[red]x[/red]\x1b[2J"), 80)[2]
    assert row == "[red]x[/red]\\x1b[2J"


@pytest.mark.parametrize(
    ("picousd", "shown"),
    [
        (None, ""),
        (0, "$0.000000"),
        (1, "$0.000000000001"),
        (999_999, "$0.000000999999"),
        (12_500_000_000, "$0.0125"),
        (1_234_567, "$0.000001"),
        (99_999_900_000_000, "$99.9999"),
        (1_234_567_890_000_000, "$1,234.57"),
        (-500_000_000_000, "-$0.5000"),
        (-1, "-$0.000000000001"),
    ],
)
def test_an_amount_in_a_table(picousd, shown):
    assert short_usd(picousd) == shown


def test_an_amount_for_machines_is_exact():
    assert usd(None) is None
    assert f"{usd(10**19 + 1):f}" == "10000000.000000000001"


def test_a_count_in_a_table():
    assert (short_count(None), short_count(0), short_count(1234567)) == ("", "0", "1,234,567")


def test_a_terminal_too_narrow_for_anything_gets_what_stays():
    assert lines_of(table_of("a-name", "b-name"), 9)[0].startswith("C0")
