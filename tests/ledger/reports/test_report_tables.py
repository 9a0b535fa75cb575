"""A report as tables. Tables as lines: what stays, what goes, how figures align. Tables as text: exact for
machines, harmless everywhere."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ledger.figures.figures import Figures, Report, ReportRow, Times
from ledger.model.money import usd
from ledger.reports.layout import (
    Amount,
    Table,
    TableColumn,
    amount_places,
    amount_text,
    cell_text,
    key_text,
    layout,
    wrapped,
)
from ledger.reports.render import as_csv, as_json, as_markdown, print_table
from ledger.reports.report_tables import document, flat, notes, period_text, screen, title
from tests.named import for_each

GPT = Figures(
    requests=3,
    errors=1,
    input_tokens=1000,
    cache_read_tokens=250,
    cacheable_input_tokens=1000,
    output_tokens=100,
    cost_picousd=12_500_000_000,
    saved_picousd=375_000_000,
    priced=2,
    unpriced=1,
    generated_tokens=100,
    generation_ms=3000,
)
LLAMA = Figures(requests=1, input_tokens=10, output_tokens=1, unpriced=1)


FULL = replace(
    GPT,
    complete_without_usage=1,
    reasoning_tokens=5,
    extra_input_tokens=6,
    estimated_cost_picousd=7_000_000,
)
TIMES = Times(
    first_token_ms_p50=80, first_token_ms_p95=999, duration_ms_p50=600, duration_ms_p95=12_340
)
NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)


def moment(year, month, day, hour=0, minute=0):
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def make(*rows, by=("model",), **more):
    more = {"since": datetime(2026, 11, 1, tzinfo=UTC), "until": None, **more}
    total = sum((row.figures for row in rows), Figures())
    return Report(
        by=by,
        rows=rows,
        total=ReportRow(key=(), figures=total, times=Times()),
        **{"open_requests": 0, "now": NOW, **more},
    )


def test_another_model_than_was_asked_for_is_noted():
    report = make(ReportRow(key=("m",), figures=GPT), other_models={("gpt-5", "gpt-5-nano"): 3})
    (note,) = [note for note in notes(report) if note.startswith("another model")]
    assert note == "another model: gpt-5-nano answered 3 requests for gpt-5"


def test_a_report_for_machines():
    times = Times(first_token_ms_p50=5, first_token_ms_p95=9)
    found = document(make(ReportRow(key=("gpt-5",), figures=GPT, times=times)))
    assert (found["by"], found["since"], found["until"]) == (
        ["model"],
        "2026-11-01T00:00:00+00:00",
        None,
    )
    (row,) = found["rows"]
    assert row["model"] == "gpt-5"
    assert row["cost_usd"] == Decimal("0.0125")
    assert row["cost_picousd"] == 12_500_000_000
    assert row["cost_state"] == "partial"
    assert row["cache_hit_rate"] == Decimal("0.2500")
    assert row["output_tokens_per_second"] == Decimal("33.3")
    assert (row["first_token_ms_p50"], row["duration_ms_p50"]) == (5, None)
    assert row["reasoning_tokens"] is None
    assert found["total"]["requests"] == 3
    assert "model" not in found["total"]


def test_a_report_as_lines():
    table = flat(
        make(
            ReportRow(key=("a", None), figures=GPT),
            ReportRow(key=("b", "s"), figures=LLAMA),
            by=("model", "session"),
        )
    )
    names = [column.name for column in table.columns]
    assert names[:4] == ["model", "session", "merged_groups", "requests"]
    assert [row[:4] for row in table.rows] == [("a", None, 0, 3), ("b", "s", 0, 1)]
    assert all(len(row) == len(names) for row in table.rows)
    assert table.total is None


def test_a_report_for_a_screen_leaves_out_what_is_empty():
    table = screen(
        make(ReportRow(key=("gpt-5",), figures=GPT), ReportRow(key=("llama",), figures=LLAMA))
    )
    assert [column.heading for column in table.columns] == [
        "Model",
        "Requests",
        "Errors",
        "Input",
        "Cached",
        "Output",
        "Cost",
        "Saved",
        "No price",
        "Tok/s",
    ]
    cost, saved = Amount(picousd=12_500_000_000, mark="≥ "), Amount(picousd=375_000_000)
    speed = 33
    assert table.rows[0] == ("gpt-5", 3, 1, 1000, "25.0%", 100, cost, saved, 1, speed)
    assert table.rows[1] == ("llama", 1, 0, 10, None, 1, "unpriced", None, 1, None)
    assert table.total == ("Total", 4, 1, 1010, "25.0%", 101, cost, saved, 2, speed)


@for_each(
    "tokens, milliseconds, shown",
    [(17, 1, "17,000"), (100, 3_000, "33"), (28, 10_000, "2.8")],
)
def test_tenths_of_a_token_per_second_are_shown_of_slow_models_alone(tokens, milliseconds, shown):
    figures = replace(GPT, generated_tokens=tokens, generation_ms=milliseconds)
    table = layout(screen(make(ReportRow(key=("gpt-5",), figures=figures))), 200)
    assert table.rows[0].split()[-1] == shown


def test_columns_drop_out_in_the_stated_order():
    table = screen(make(ReportRow(key=("gpt-5",), figures=FULL, times=TIMES)))
    assert layout(table, 200).left_out == ()
    gone = ["Tok/s", "Duration", "First token", "Reasoning", "Further", "Saved", "Estimated"]
    gone += ["No usage", "No price", "Cached", "Errors"]
    width = len(layout(table, 200).rule)
    for count in range(len(gone) + 1):
        shown = layout(table, width)
        assert set(shown.left_out) == set(gone[:count])
        width = len(shown.rule) - 1
    assert shown.heading.split() == ["Model", "Requests", "Input", "Output", "Cost"]
    assert len(shown.rule) <= 80


def test_rows_without_a_name_and_merged_ones_say_so():
    table = screen(
        make(
            ReportRow(key=(None, "t"), figures=GPT),
            ReportRow(key=(None, None), figures=LLAMA, merged=4),
            by=("model", "session"),
        )
    )
    assert [row[:2] for row in table.rows] == [("(none)", "t"), ("(4 more)", "")]
    assert table.total is not None
    assert table.total[:2] == ("Total", "")


def test_a_key_is_never_32_hex_digits():
    fingerprint = "3f2a9c" + "0" * 26
    report = make(ReportRow(key=(fingerprint,), figures=GPT, hint="1111"), by=("key",))
    assert screen(report).rows[0][0] == "…1111 (3f2a9c)"
    (row,) = document(report)["rows"]
    assert (row["key"], row["key_hint"]) == (fingerprint, "1111")


def test_a_cost_of_nothing_is_not_an_unknown_one():
    free = Figures(requests=1, cost_picousd=0, priced=1)
    failed = Figures(requests=1, errors=1)
    table = screen(make(ReportRow(key=("a",), figures=free), ReportRow(key=("b",), figures=failed)))
    place = [column.heading for column in table.columns].index("Cost")
    assert [row[place] for row in table.rows] == [Amount(picousd=0), None]


@for_each(
    "word, part, period, is_in_part",
    [
        pytest.param("day", "2026-11-19", (moment(2026, 11, 1), None), False, id="a-whole-day"),
        pytest.param("day", "2026-11-20", (moment(2026, 11, 1), None), True, id="today"),
        pytest.param("day", "2026-11-20", (None, moment(2026, 11, 21)), True, id="until-tonight"),
        pytest.param("day", "2026-11-10", (moment(2026, 11, 10, 1), None), True, id="from-one"),
        pytest.param("day", "2026-11-10", (None, moment(2026, 11, 10, 9)), True, id="until-nine"),
        pytest.param("week", "2026-11-09", (moment(2026, 11, 9), None), False, id="a-whole-week"),
        pytest.param("week", "2026-11-09", (moment(2026, 11, 10), None), True, id="from-tuesday"),
        pytest.param("month", "2026-10", (moment(2026, 10, 1), None), False, id="a-whole-month"),
        pytest.param("month", "2026-11", (moment(2026, 10, 1), None), True, id="this-month"),
        pytest.param("month", "2026-11", (None, None), True, id="the-ledger-begins-in-it"),
        pytest.param("hour", "2026-11-20 14", (moment(2026, 11, 20), None), False, id="an-hour"),
        pytest.param("hour", "2026-11-20 15", (moment(2026, 11, 20), None), True, id="this-hour"),
    ],
)
def test_what_is_not_whole_is_marked(word, part, period, is_in_part):
    since, until = period
    first = moment(2026, 11, 2)
    row = ReportRow(key=(part,), figures=GPT)
    report = make(row, by=(word,), since=since, until=until, first=first)
    label = screen(report).rows[0][0]
    assert label == part + ("*" if is_in_part else "")
    assert any(note.startswith("* in part") for note in notes(report)) == is_in_part
    assert document(report)["rows"][0][word] == part


@for_each(
    "period, text",
    [
        ({"since": None}, "all time UTC"),
        (
            {"since": None, "first": moment(2026, 11, 2, 12), "last": moment(2026, 11, 3)},
            "all time (2026-11-02 12:00 to 2026-11-03) UTC",
        ),
        (
            {"since": moment(2026, 11, 1), "until": moment(2026, 12, 1)},
            "2026-11-01 to 2026-11-30 UTC",
        ),
        ({"since": moment(2026, 11, 1), "until": moment(2026, 11, 2)}, "2026-11-01 UTC"),
        (
            {"since": moment(2026, 11, 1, 6), "until": moment(2026, 11, 1, 7)},
            "2026-11-01 06:00 to 2026-11-01 07:00 UTC",
        ),
        (
            {"first": moment(2026, 11, 2), "last": moment(2026, 11, 3, 1, 2)},
            "from 2026-11-01 to now (last request 2026-11-03 01:02) UTC",
        ),
        (
            {"since": None, "until": moment(2026, 12, 1), "first": moment(2026, 11, 2)},
            "before 2026-12-01 UTC",
        ),
        (
            {
                "since": None,
                "until": moment(2026, 12, 1),
                "first": moment(2026, 11, 2),
                "last": moment(2026, 11, 3),
            },
            "before 2026-12-01 (first request 2026-11-02) UTC",
        ),
    ],
)
def test_the_period_is_always_stated(period, text):
    report = make(ReportRow(key=("a",), figures=GPT), **period)
    assert period_text(report) == text
    assert title(report) == f"Requests by model, {text}"


def test_the_conditions_are_stated():
    report = make(only=(("model", "gpt*"), ("tag:team", "\x1b[2J")), since=None, by=())
    assert title(report) == "Requests, all time UTC; only model=gpt*, tag:team=\\x1b[2J"


def test_times_share_a_unit():
    table = screen(make(ReportRow(key=("a",), figures=GPT, times=TIMES)))
    cells = dict(zip([column.heading for column in table.columns], table.rows[0], strict=True))
    assert cells["First token"] == "80/999 ms"
    assert cells["Duration"] == "0.6/12 s"
    assert as_markdown(table).endswith("|\n\ntimes: median/95th percentile\n")
    assert "median" not in as_markdown(screen(make(ReportRow(key=("a",), figures=GPT))))


def test_requests_without_an_answer_stand_under_the_name_that_was_asked_for():
    failed = ReportRow(key=("alias",), figures=Figures(requests=2, errors=2))
    (line,) = notes(make(ReportRow(key=("a",), figures=Figures(requests=1)), failed))
    assert line == (
        "under the name that was asked for, as no model answered: 2 requests; --by request_model "
        "puts them beside the answers"
    )
    assert not [*notes(make(failed, by=("request_model",)))]


def test_what_the_reader_must_know():
    figures = Figures(
        requests=9,
        unpriced=1,
        partial=1,
        reported=3,
        complete_without_usage=4,
        estimated=2,
        estimated_input_tokens=1000,
        estimated_output_tokens=500,
        estimated_cost_picousd=10**12,
        difference_picousd=-(10**12),
    )
    row = ReportRow(key=("a",), figures=figures)
    told = list(notes(make(row, open_requests=1, differing=2)))
    assert told == [
        "no price: lines of 2 of 9 requests, so the cost is a lower bound; "
        "`tokentee requests --unpriced` lists them",
        "without usage, in no total: 4 completed, 2 ended early; "
        "by our estimate ~1,000 input and ~500 output tokens, ~$1.00",
        "no price of our own: 3 requests at the provider's own figure",
        "our cost minus the providers' own figures: −$1.00",
        "providers' own figures differ in 2 requests; the column `remarks` says how",
        "still open, in no figure: 1 request",
    ]


def test_a_completed_request_without_usage_is_told_even_without_an_estimate():
    figures = Figures(requests=3, complete_without_usage=3)
    report = make(ReportRow(key=("a",), figures=figures))
    assert list(notes(report)) == ["without usage, in no total: 3 completed, 0 ended early"]
    table = screen(report)
    assert "No usage" in [column.heading for column in table.columns]


def test_nothing_to_know_is_nothing_said():
    assert list(notes(make(ReportRow(key=("a",), figures=Figures(requests=1, priced=1))))) == []


USD = 10**12


def text(name, **more):
    return TableColumn(name=name, heading=name, is_number=False, **more)


def number(name, drop=0):
    return TableColumn(name=name, heading=name, drop=drop)


def lines(table, width):
    shown = layout(table, width)
    return [shown.heading, shown.rule, *shown.rows, *([shown.total] if shown.total else [])]


BILL = Table(
    columns=(text("Model"), number("Input"), number("Speed", drop=2), number("Cost", drop=1)),
    rows=(
        ("gpt-5", 1234567, Decimal("33.3"), Amount(picousd=12 * USD + USD // 2)),
        ("claude-haiku-4-5", None, Decimal(120), Amount(picousd=1000, mark="≥ ")),
        ("模型", 0, None, "unpriced"),
    ),
    total=("Total", 1234567, "", Amount(picousd=12 * USD + USD // 2, mark="≥ ")),
)


def test_a_table_that_fits():
    assert lines(BILL, 80) == [
        "Model                 Input  Speed        Cost",
        "──────────────────────────────────────────────",
        "gpt-5             1,234,567   33.3    $12.5000",
        "claude-haiku-4-5          -  120    ≥ <$0.0001",
        "模型                      0      -    unpriced",
        "Total             1,234,567         ≥ $12.5000",
    ]


@for_each(
    "width, left_out",
    [(46, ()), (45, ("Speed",)), (39, ("Speed",)), (38, ("Speed", "Cost")), (5, ("Speed", "Cost"))],
)
def test_columns_go_in_their_order(width, left_out):
    assert layout(BILL, width).left_out == left_out


def test_the_widest_text_loses_its_middle_when_nothing_else_can_go():
    table = Table(
        columns=(text("Model"), text("Key"), number("Cost")),
        rows=(("anthropic/claude-haiku-4-5-20251001", "…1111", 5),),
    )
    shown = layout(table, 30)
    assert shown.rows == ("anthropic/c…51001  …1111     5",)
    assert shown.rows[0].startswith("anthropic/")
    assert "…" in shown.rows[0]
    assert "1001  …1111" in shown.rows[0]


def test_sentences_wrap_at_spaces():
    table = Table(
        columns=(text("Line"), number("Price"), text("Price from", wraps=True)),
        rows=(
            ("output", Decimal("1.5"), "litellm 1.2, the list of openai; above 200,000 tokens"),
            ("input", Decimal(1), ""),
        ),
    )
    assert lines(table, 44) == [
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
    for line in lines(table, width):
        assert cell_len(line) <= max(width, 45)
        assert "\x1b" not in line
        assert "\n" not in line


@for_each(
    "largest, places",
    [(0, 6), (USD - 1, 6), (USD, 4), (100 * USD - 1, 4), (100 * USD, 2), (-100 * USD, 2)],
)
def test_the_largest_amount_of_a_column_sets_its_decimals(largest, places):
    assert amount_places([Amount(picousd=1), Amount(picousd=largest)]) == places


@for_each(
    "picousd, places, shown",
    [
        (0, 2, "$0.00"),
        (1234567 * USD, 2, "$1,234,567.00"),
        (USD // 1000, 2, "<$0.01"),
        (-USD // 1000, 2, "-<$0.01"),
        (-5 * USD, 4, "-$5.0000"),
        (499_999, 6, "<$0.000001"),
        (500_000, 6, "<$0.000001"),
        (500_001, 6, "$0.000001"),
    ],
)
def test_an_amount_is_never_shown_as_zero_unless_it_is(picousd, places, shown):
    assert amount_text(Amount(picousd=picousd), places) == shown


@given(st.integers(min_value=-(2**63), max_value=2**63), st.sampled_from([2, 4, 6]))
def test_only_zero_reads_as_zero(picousd, places):
    shown = amount_text(Amount(picousd=picousd), places)
    is_zero = not any(digit in shown for digit in "123456789")
    assert is_zero == (picousd == 0)


@for_each(
    "cell, shown",
    [(None, "-"), (True, "yes"), (False, "no"), (1000, "1,000"), ("a\x1b", "a\\x1b"), ("", "")],
)
def test_a_cell(cell, shown):
    assert cell_text(cell) == shown


def test_a_key_is_its_end_and_a_short_fingerprint():
    assert key_text("3f2a9c" + "0" * 26, "1111") == "…1111 (3f2a9c)"
    assert key_text("3f2a9c" + "0" * 26, None) == "key 3f2a9c"


def test_a_note_breaks_at_spaces_only():
    note = "tokentee: a-very-long-word-that-does-not-fit and more"
    assert wrapped(note, 20, "  ").split("\n") == [
        "tokentee:",
        "  a-very-long-word-that-does-not-fit",
        "  and more",
    ]
    assert wrapped("", 20) == ""


def test_a_time_is_not_cut():
    columns = (
        TableColumn(name="at", heading="Time", is_number=False, is_whole=True),
        TableColumn(name="model", heading="Model", is_number=False),
    )
    table = Table(columns=columns, rows=(("2026-11-23 20:03:17", "claude-haiku-4-5"),))
    assert layout(table, 33).rows == ("2026-11-23 20:03:17  claude-h…4-5",)


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
