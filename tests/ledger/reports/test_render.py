"""Tables as text: exact for machines, harmless everywhere."""

import csv
import io
import json
import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ledger.model.money import usd
from ledger.reports.layout import (
    Amount,
    Table,
    TableColumn,
)
from ledger.reports.render import as_csv, as_json, as_markdown, print_table, table_lines
from tests.named import for_each

TABLE = Table(
    columns=(
        TableColumn(name="model", heading="Model", is_number=False),
        TableColumn(name="cost_usd", heading="Cost", drop=1),
        TableColumn(name="known", heading="Known", is_number=False, drop=2),
    ),
    rows=(("gpt-5", Decimal("0.0125"), True), (None, None, False)),
    total=("Total", Decimal("0.0125"), None),
)


def table_of(*cells):
    columns = tuple(
        TableColumn(name=f"c{place}", heading=f"C{place}") for place in range(len(cells))
    )
    return Table(columns=columns, rows=(cells,))


def test_a_spreadsheet_gets_no_formulas_and_a_terminal_no_controls():
    (_, row) = csv.reader(io.StringIO(as_csv(table_of("=1+1", "\x1b[2J", "a,b", 'say "x"'))))
    assert row == ["'=1+1", "\\x1b[2J", "a,b", 'say "x"']


def test_csv_keeps_numbers_and_nulls():
    assert as_csv(table_of(-5, Decimal("-0.50"), None, False, 0, Amount(picousd=1, mark="≥ "))) == (
        "c0,c1,c2,c3,c4,c5\n-5,-0.50,,false,0,0.000000000001\n"
    )


def test_csv_has_no_total_to_be_summed_twice():
    assert as_csv(TABLE).count("0.0125") == 1


def test_markdown():
    assert as_markdown(TABLE) == (
        "| Model | Cost | Known |\n"
        "| --- | ---: | --- |\n"
        "| gpt-5 | 0.0125 | yes |\n"
        "| - | - | no |\n"
        "| **Total** | **0.0125** |  |\n"
    )


def test_markdown_gets_no_markup():
    assert as_markdown(table_of("a|b*c*<img src=x>\n[l](u)")).splitlines()[2] == (
        "| a\\|b\\*c\\*\\<img src=x\\>\\\\x0a\\[l\\](u) |"
    )
    assert as_markdown(table_of("https://x.y @team www.x.y &lt; $a$")).splitlines()[2] == (
        "| https\\://x.y \\@team www\\.x.y \\&lt; \\$a\\$ |"
    )


def test_markdown_has_its_title_above():
    assert as_markdown(TABLE, "By model, all time").startswith("By model, all time\n\n| Model |")


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


def printed(table, width, **more):
    file = io.StringIO()
    console = Console(file=file, width=width)
    left_out = print_table(table, console, **more)
    return file.getvalue(), left_out


def test_a_table_on_a_terminal():
    text, left_out = printed(TABLE, 80, title="Requests, all time")
    assert text == (
        "Requests, all time\n"
        "Model    Cost  Known\n"
        "────────────────────\n"
        "gpt-5  0.0125  yes\n"
        "-           -  no\n"
        "────────────────────\n"
        "Total  0.0125\n"
    )
    assert left_out == ()


def test_a_narrow_terminal_gets_fewer_columns():
    assert printed(TABLE, 15)[1] == ("Known",)
    assert printed(TABLE, 9)[1] == ("Cost", "Known")


def text(name, **more):
    return TableColumn(name=name, heading=name, is_number=False, **more)


def number(name, drop=0):
    return TableColumn(name=name, heading=name, drop=drop)


USD = 10**12
BILL = Table(
    columns=(text("Model"), number("Input"), number("Speed", drop=2), number("Cost", drop=1)),
    rows=(
        ("gpt-5", 1234567, Decimal("33.3"), Amount(picousd=12 * USD + USD // 2)),
        ("claude-haiku-4-5", None, Decimal(120), Amount(picousd=1000, mark="≥ ")),
        ("模型", 0, None, "unpriced"),
    ),
    total=("Total", 1234567, "", Amount(picousd=12 * USD + USD // 2, mark="≥ ")),
)


def test_figures_align_at_their_points():
    assert table_lines(BILL, 80) == [
        "Model                 Input  Speed        Cost",
        "──────────────────────────────────────────────",
        "gpt-5             1,234,567   33.3    $12.5000",
        "claude-haiku-4-5          -  120    ≥ <$0.0001",
        "模型                      0      -    unpriced",
        "──────────────────────────────────────────────",
        "Total             1,234,567         ≥ $12.5000",
    ]


@for_each(
    "width, left_out",
    [(46, ()), (45, ("Speed",)), (39, ("Speed",)), (38, ("Speed", "Cost")), (5, ("Speed", "Cost"))],
)
def test_columns_go_in_their_order(width, left_out):
    assert printed(BILL, width)[1] == left_out


def test_texts_lose_their_ends_when_nothing_else_can_go():
    columns = (text("Time", is_whole=True), text("Model"), number("Cost"))
    table = Table(columns=columns, rows=(("2026-11-23 20:03:17", "claude-haiku-4-5", 12_345),))
    assert table_lines(table, 43)[2] == "2026-11-23 20:03:17  claude-haiku-…  12,345"


def test_sentences_wrap_at_spaces():
    table = Table(
        columns=(text("Line"), number("Price"), text("Price from", wraps=True)),
        rows=(
            ("output", Decimal("1.5"), "litellm 1.2, the list of openai; above 200,000 tokens"),
            ("input", Decimal(1), ""),
        ),
    )
    assert table_lines(table, 44) == [
        "Line    Price  Price from",
        "────────────────────────────────────────────",
        "output    1.5  litellm 1.2, the list of",
        "               openai; above 200,000 tokens",
        "input     1",
    ]


@given(
    st.lists(
        st.tuples(
            st.text(max_size=40),
            st.none() | st.integers(),
            st.none()
            | st.decimals(
                allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
            ),
        ),
        max_size=5,
    ),
    st.integers(min_value=40, max_value=140),
)
def test_lines_are_as_wide_as_the_terminal_and_have_no_controls(rows, width):
    table = Table(columns=(text("T"), number("N", drop=1), number("D", drop=2)), rows=tuple(rows))
    for line in table_lines(table, width):
        assert cell_len(line) <= max(width, 45)
        assert "\x1b" not in line
        assert "\n" not in line


def test_text_from_the_wire_is_no_markup():
    assert "[red]x[/red]\\x1b[2J" in printed(table_of("[red]x[/red]\x1b[2J"), 80)[0]


def test_a_terminal_gets_bold_and_dim_and_no_colours():
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="truecolor")
    print_table(TABLE, console)
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", file.getvalue()))
    assert codes == {"0", "1", "2"}


def test_an_amount_for_machines_is_exact():
    assert usd(None) is None
    assert f"{usd(10**19 + 1):f}" == "10000000.000000000001"
