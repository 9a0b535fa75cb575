"""Tables as lines: what stays, what goes, how figures align."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

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
from tests.named import for_each

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
