"""A report as tables."""

from datetime import UTC, datetime
from decimal import Decimal

from ledger.reports.figures import Figures, Report, Row, Times
from ledger.reports.report_tables import document, flat, notes, screen

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


def make(*rows, by=("model",), **more):
    total = sum((row.figures for row in rows), Figures())
    return Report(
        by=by,
        since=datetime(2026, 11, 1, tzinfo=UTC),
        until=None,
        rows=rows,
        total=Row(key=(), figures=total, times=Times()),
        **{"open_requests": 0, **more},
    )


def test_a_report_for_machines():
    times = Times(first_token_ms_p50=5, first_token_ms_p95=9)
    found = document(make(Row(key=("gpt-5",), figures=GPT, times=times)))
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
            Row(key=("a", None), figures=GPT),
            Row(key=("b", "s"), figures=LLAMA),
            by=("model", "session"),
        )
    )
    names = [column.name for column in table.columns]
    assert names[:4] == ["model", "session", "merged_groups", "requests"]
    assert [row[:4] for row in table.rows] == [("a", None, 0, 3), ("b", "s", 0, 1)]
    assert all(len(row) == len(names) for row in table.rows)
    assert table.total is None


def test_a_report_for_a_screen_leaves_out_what_is_empty():
    table = screen(make(Row(key=("gpt-5",), figures=GPT), Row(key=("llama",), figures=LLAMA)))
    assert [column.heading for column in table.columns] == [
        "model",
        "Requests",
        "Errors",
        "Input",
        "Cached",
        "Output",
        "Cost",
        "Saved",
        "Unpriced",
        "Tok/s",
    ]
    assert table.rows[0] == (
        "gpt-5",
        3,
        1,
        1000,
        "25.0%",
        100,
        "≥ $0.0125",
        "$0.000375",
        1,
        "33.3",
    )
    assert table.rows[1] == ("llama", 1, None, 10, None, 1, "unpriced", None, 1, None)
    assert table.total == (
        "Total",
        4,
        1,
        1010,
        "25.0%",
        101,
        "≥ $0.0125",
        "$0.000375",
        2,
        "33.3",
    )


def test_rows_without_a_name_and_merged_ones_say_so():
    table = screen(
        make(
            Row(key=(None, "t"), figures=GPT),
            Row(key=(None, None), figures=LLAMA, merged=4),
            by=("model", "day"),
        )
    )
    assert [row[:2] for row in table.rows] == [("(none)", "t"), ("(4 more)", "")]
    assert table.total[:2] == ("Total", "")


def test_a_cost_of_nothing_is_not_an_unknown_one():
    free = Figures(requests=1, cost_picousd=0, priced=1)
    failed = Figures(requests=1, errors=1)
    table = screen(make(Row(key=("a",), figures=free), Row(key=("b",), figures=failed)))
    place = [column.heading for column in table.columns].index("Cost")
    assert [row[place] for row in table.rows] == ["$0.000000", "-"]


def test_times_share_a_unit():
    table = screen(
        make(
            Row(
                key=("a",),
                figures=GPT,
                times=Times(
                    first_token_ms_p50=80,
                    first_token_ms_p95=999,
                    duration_ms_p50=600,
                    duration_ms_p95=12_340,
                ),
            )
        )
    )
    cells = dict(zip([column.heading for column in table.columns], table.rows[0], strict=True))
    assert cells["First token"] == "80/999 ms"
    assert cells["Duration"] == "0.60/12.3 s"


def test_what_the_reader_must_know():
    figures = Figures(
        requests=9,
        unpriced=1,
        partial=1,
        reported=3,
        estimated=2,
        estimated_output_tokens=500,
        estimated_cost_picousd=10**12,
        difference_picousd=-(10**12),
    )
    told = list(notes(make(Row(key=("a",), figures=figures), open_requests=1)))
    assert told == [
        (
            "without a price, and so not in the cost: lines of 2 of 9 requests; the view "
            "`unpriced` says which, and why"
        ),
        (
            "ended before usage was reported: 2 requests, ~500 output tokens by our estimate, "
            "$1.0000 of the cost"
        ),
        "at their provider's own figure, for want of a price: 3 requests",
        "our cost less the providers' own figures: -$1.0000",
        "still open, and in no figure: 1 request",
    ]


def test_nothing_to_know_is_nothing_said():
    assert list(notes(make(Row(key=("a",), figures=Figures(requests=1, priced=1))))) == []
