"""A report as tables."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from rich.console import Console

from ledger.figures.figures import Figures, Report, ReportRow, Times
from ledger.reports.layout import Amount
from ledger.reports.render import as_markdown, print_table, table_lines
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
    lines = table_lines(screen(make(ReportRow(key=("gpt-5",), figures=figures))), 200)
    assert lines[2].split()[-1] == shown


def test_columns_drop_out_in_the_stated_order():
    table = screen(make(ReportRow(key=("gpt-5",), figures=FULL, times=TIMES)))
    gone = ["Tok/s", "Duration", "First token", "Reasoning", "Further", "Saved", "Estimated"]
    gone += ["No usage", "No price", "Cached", "Errors"]
    width = 200
    for count in range(len(gone) + 1):
        heading, rule, *_ = table_lines(table, width)
        left_out = print_table(table, Console(file=io.StringIO(), width=width))
        assert set(left_out) == set(gone[:count])
        width = len(rule) - 1
    assert heading.split() == ["Model", "Requests", "Input", "Output", "Cost"]
    assert len(rule) <= 80


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
        "no model answered 2 requests: listed under the model that was asked for; "
        "--by request_model lists all requests so"
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
        "no list price: 3 requests, counted with the provider's own figure",
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


@pytest.mark.parametrize(
    ("costs", "covered", "tokens", "bars"),
    [
        pytest.param(
            (100, 50, 1, 0), (None,) * 4, (1, 1, 1, 1), ["█" * 10, "█" * 5, "", ""], id="costs"
        ),
        pytest.param(
            (8, 1, None), (None, 7, 4), (1, 1, 1), ["█" * 10, "█" * 10, "█" * 5], id="plan"
        ),
        pytest.param((None, None), (None, None), (80, 1), ["█" * 10, "▏"], id="tokens"),
        pytest.param((0, -5, 10), (None,) * 3, (1, 1, 1), ["", "", "█" * 10], id="credit"),
        pytest.param((5,), (None,), (1,), None, id="one-row"),
        pytest.param((None, None), (None, None), (None, 0), None, id="nothing"),
    ],
)
def test_the_bars_of_a_terminal(costs, covered, tokens, bars):
    rows = [
        ReportRow(
            key=(str(place),),
            figures=Figures(
                requests=1, cost_picousd=cost, covered_value_picousd=value, input_tokens=count
            ),
        )
        for place, (cost, value, count) in enumerate(zip(costs, covered, tokens, strict=True))
    ]
    table = screen(make(*rows), has_bars=True)
    headings = [column.heading for column in table.columns]
    assert ("Share" in headings) == (bars is not None)
    if bars is not None:
        assert headings[1] == "Share"
        assert [row[1] for row in table.rows] == bars
        assert table.total is not None
        assert table.total[1] == ""


def test_a_bar_that_has_no_room_is_not_missed():
    rows = [ReportRow(key=("m" * 20,), figures=GPT), ReportRow(key=("b",), figures=GPT)]
    console = Console(file=io.StringIO(), width=60)
    left_out = print_table(screen(make(*rows), has_bars=True), console)
    assert "Share" not in left_out
    assert "█" not in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
