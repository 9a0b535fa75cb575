"""Tables as text: exact for machines, harmless everywhere."""

import csv
import io
import json
import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ledger.model.money import usd
from ledger.reports.layout import (
    Amount,
    Table,
    TableColumn,
)
from ledger.reports.render import as_csv, as_json, as_markdown, print_table

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
