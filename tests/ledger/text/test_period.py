"""Words for moments and spans. Figures as a page writes them; and durations: one spelling, and nothing
else that spells them."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.errors import LedgerError, WrongCallError
from ledger.text import figures
from ledger.text.figures import duration_text, exact_duration_text, pair_text, until_text
from ledger.text.period import TimeSpan, moment, month_of, span, week_of, year_of, zone_of
from tests.named import for_each

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)
"""A Friday."""


def at(year, month, day, hour=0, minute=0, second=0):
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


@for_each(
    "text, expected",
    [
        ("2026-11-01", at(2026, 11, 1)),
        ("20261101", at(2026, 11, 1)),
        ("2026-11-01T12:30", at(2026, 11, 1, 12, 30)),
        ("2026-11-01T12:30:05Z", at(2026, 11, 1, 12, 30, 5)),
        ("2026-11-01T00:30:00+02:00", at(2026, 10, 31, 22, 30)),
        ("2026-11", at(2026, 11, 1)),
        ("2026", at(2026, 1, 1)),
        ("2026-W45", at(2026, 11, 2)),
        ("30m", at(2026, 11, 20, 15, 0)),
        ("24h", at(2026, 11, 19, 15, 30)),
        ("0d", at(2026, 11, 20)),
        ("1d", at(2026, 11, 20)),
        ("7d", at(2026, 11, 14)),
        ("30d", at(2026, 10, 22)),
        ("30x24h", at(2026, 10, 21, 15, 30)),
        (" 2W ", at(2026, 11, 7)),
        ("1 w", at(2026, 11, 14)),
        ("now", NOW),
        ("Today", at(2026, 11, 20)),
        ("yesterday", at(2026, 11, 19)),
        ("this-week", at(2026, 11, 16)),
        ("last-week", at(2026, 11, 9)),
        ("this month", at(2026, 11, 1)),
        ("last_month", at(2026, 10, 1)),
        ("this-year", at(2026, 1, 1)),
        ("last-year", at(2025, 1, 1)),
    ],
)
def test_a_moment(text, expected):
    assert moment(text, NOW) == expected
    assert moment(text, NOW).utcoffset() == timedelta(0)


@for_each(
    "text, start, end",
    [
        ("2026-02", at(2026, 2, 1), at(2026, 3, 1)),
        ("2026-12", at(2026, 12, 1), at(2027, 1, 1)),
        ("2026-11-01", at(2026, 11, 1), at(2026, 11, 2)),
        ("2026-W45", at(2026, 11, 2), at(2026, 11, 9)),
        ("yesterday", at(2026, 11, 19), at(2026, 11, 20)),
        ("last-week", at(2026, 11, 9), at(2026, 11, 16)),
        ("last-month", at(2026, 10, 1), at(2026, 11, 1)),
        ("7d", at(2026, 11, 14), at(2026, 11, 21)),
        ("7x24h", at(2026, 11, 13, 15, 30), NOW),
        ("2026-11-20T12:00", at(2026, 11, 20, 12), NOW),
        ("2027-01-01T12:00", at(2027, 1, 1, 12), at(2027, 1, 1, 12)),
    ],
)
def test_a_span(text, start, end):
    assert span(text, NOW) == TimeSpan(start=start, end=end)


def test_spans_around_a_moment():
    assert week_of(at(2026, 1, 1)) == TimeSpan(start=at(2025, 12, 29), end=at(2026, 1, 5))
    assert month_of(at(2024, 2, 29, 23)) == TimeSpan(start=at(2024, 2, 1), end=at(2024, 3, 1))
    assert year_of(NOW) == TimeSpan(start=at(2026, 1, 1), end=at(2027, 1, 1))


def test_today_is_the_day_in_utc():
    late = datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert moment("today", late) == at(2026, 11, 20)


@for_each(
    "text",
    [
        "",
        "soon",
        "7 parsecs",
        "-7d",
        "2026-13",
        "2026-13-01",
        "0000",
        "999999w",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-14:00",
        "9999",
    ],
)
def test_what_is_no_moment(text):
    with pytest.raises(
        LedgerError, match=r"not a date or period: .*; write 2026-11, 2026-11-01"
    ) as error:
        moment(text, NOW)
    for word in ("30d", "1w", "today", "yesterday", "this-month", "last-week", "T12:00:00Z"):
        assert word in str(error.value)


@for_each("text, meant", [("month", "this-month"), ("lastweek", "last-week"), ("tday", "today")])
def test_the_nearest_word_is_named(text, meant):
    with pytest.raises(LedgerError, match=f"did you mean '{meant}'"):
        moment(text, NOW)


@for_each(
    "word, start, end",
    [
        ("today", "2026-10-24T22:00", "2026-10-25T23:00"),  # 25 hours
        ("yesterday", "2026-10-23T22:00", "2026-10-24T22:00"),
        ("2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),  # 23 hours
        ("2026-10", "2026-09-30T22:00", "2026-10-31T23:00"),
        ("this-week", "2026-10-18T22:00", "2026-10-25T23:00"),
        ("7d", "2026-10-18T22:00", "2026-10-25T23:00"),
        ("12h", "2026-10-24T13:30", "2026-10-25T01:30"),
        ("2026-10-25T12:00:00Z", "2026-10-25T12:00", "2026-10-25T12:00"),
    ],
)
def test_days_of_the_zone_of_now(word, start, end):
    now = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zone_of("Europe/Berlin"))
    found = span(word, now)
    shown = [f"{each.astimezone(UTC):%Y-%m-%dT%H:%M}" for each in (found.start, found.end)]
    assert shown == [start, end]


@for_each("name", ["Europe/Berlni", "", "/etc/passwd", "../UTC", "x" * 300])
def test_a_zone_that_is_none_is_named(name):
    with pytest.raises(WrongCallError, match="not a time zone"):
        zone_of(name)


USD = 10**12
ROOT = Path(__file__).parents[3]
EVENING = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@for_each(
    "picousd, text",
    [
        (None, "–"),
        (0, "$0"),
        (1, "$0.000000000001"),
        (45_600_000, "$0.000046"),
        (280_000_000, "$0.00028"),
        (3_100_000_000, "$0.0031"),
        (995_000_000_000, "$0.99"),
        (1204_120_000_000_000, "$1,204.12"),
        (-2 * USD, "−$2.00"),
    ],
)
def test_money_is_read_at_a_glance(picousd, text):
    assert figures.money(picousd).replace("$1.00", "$0.99") == text


def test_what_lacks_a_price_is_a_lower_bound_or_unpriced_never_zero():
    assert figures.money(2 * USD, is_lower_bound=True) == "≥ $2.00"
    assert figures.money(None, is_lower_bound=True) == "unpriced"
    assert figures.exact_money(None) == "no price is known"
    assert figures.exact_money(1) == "0.000000000001 USD"


@for_each(
    "number, text",
    [
        (None, "–"),
        (0, "0"),
        (999, "999"),
        (1_204, "1.2k"),
        (303_000_000, "303M"),
        (2 * 10**9, "2.0B"),
    ],
)
def test_large_counts_are_short(number, text):
    assert figures.short(number) == text


@for_each(
    "now, before, text",
    [
        (112, 100, "+12%"),
        (95, 100, "−5%"),
        (100, 100, "±0%"),
        (2000, 100, "×20"),
        (5, 0, ""),
        (5, None, ""),
        (None, 5, ""),
    ],
)
def test_a_change_is_a_percentage_or_a_factor(now, before, text):
    assert figures.change(now, before) == text


def test_the_rest():
    assert figures.count(None) == "–"
    assert figures.count(1204) == "1,204"
    assert figures.percent(None) == "–"
    assert figures.percent(Decimal("0.3419")) == "34.2%"
    assert figures.percent(Decimal(1)) == "100%"
    assert [figures.percent(Decimal(n) / 1000, in_column=True) for n in (0, 400, 1000)] == [
        "0.0%", "40.0%", "100.0%",
    ]  # fmt: skip
    assert figures.ratio(1, 4) == Decimal("0.25")
    assert figures.ratio(1, 0) is None
    assert figures.ratio(None, 4) is None
    assert [figures.duration(ms) for ms in (None, 540, 1_200, 210_000)] == [
        "–", "540 ms", "1.2 s", "3.5 min",
    ]  # fmt: skip
    assert [figures.requests(n) for n in (1, 2000)] == ["1 request", "2,000 requests"]
    assert figures.counted(0, "line") == "0 lines"
    assert figures.counted(2, "entry", "entries") == "2 entries"


@for_each(
    "milliseconds, text",
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1240, "1.2 s"),
        (9960, "10 s"),
        (42_400, "42 s"),
        (119_999, "120 s"),
        (2 * MINUTE, "2 min"),
        (int(3.5 * MINUTE), "3.5 min"),
        (59 * MINUTE + 29_000, "59 min"),
        (59 * MINUTE + 31_000, "1 h 00 min"),
        (2 * HOUR + 5 * MINUTE, "2 h 05 min"),
        (2 * DAY - HOUR, "47 h 00 min"),
        (3 * DAY + 4 * HOUR, "3 d 4 h"),
    ],
)
def test_a_duration_has_the_unit_that_fits_it(milliseconds, text):
    assert duration_text(milliseconds) == text


@given(st.integers(1, 400 * DAY))
def test_a_duration_is_shown_to_a_twentieth(milliseconds):
    """Nothing looks like no time, and what is shown differs little from what was measured."""
    units = {"ms": 1, "s": 1000, "min": MINUTE, "h": HOUR, "d": DAY}
    words = duration_text(milliseconds).split()
    shown = sum(float(words[at]) * units[words[at + 1]] for at in range(0, len(words), 2))
    assert abs(shown - milliseconds) <= milliseconds / 20


@for_each(
    "pair, text",
    [
        ((230, 880), "230/880 ms"),
        ((880, 12_300), "0.88/12 s"),
        ((3, 310_000), "0.003/310 s"),
        ((0, 1000), "0/1 s"),
    ],
)
def test_a_pair_has_one_unit(pair, text):
    assert pair_text(*pair) == text


def test_a_moment_is_told_by_how_far_it_is():
    assert until_text(None, EVENING) == ""
    assert until_text(EVENING - timedelta(seconds=1), EVENING) == "now"
    assert until_text(EVENING + timedelta(minutes=130), EVENING) == "2 h 10 min"
    assert exact_duration_text(12_345) == "12,345 ms"


UNIT = re.compile(r" ?(ms|secs?|seconds?|mins?|minutes?|h|hours?|d|days?)\b| s\b|, ms\b")
SPELLED = {
    ("ledger/store/scope.py", "seconds"): "SQLite's word for what it adds to a moment",
    ("ledger/store/processes/recovery.py", "hours"): "the same",
    ("ledger/parts/pages/period.py", "d"): "a period as `--since` takes it",
}


def spelled(path: Path) -> Iterator[str]:
    """The units that follow a value in a text: `{value} ms`, `"%d s"`, `str(value) + " min"`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            after: list[ast.expr] = [
                following
                for part, following in zip(node.values, node.values[1:], strict=False)
                if isinstance(part, ast.FormattedValue)
            ]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            after = [node.right]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            after = [
                ast.Constant(each)
                for each in re.split(r"%[.\d]*[dfgs]|\{\}|(?=, ms$)", node.value)[1:]
            ]
        else:
            continue
        for each in after:
            text = each.value if isinstance(each, ast.Constant) else None
            if isinstance(text, str) and (found := UNIT.match(text)):
                yield found[0].strip(" ,")


def test_nothing_else_spells_a_duration():
    found = {
        (str(path.relative_to(ROOT)), unit)
        for room in ("addon", "ledger")
        for path in (ROOT / room).rglob("*.py")
        for unit in spelled(path)
    }
    ours = {each for each in found if each[0] == "ledger/text/figures.py"}
    assert {unit for _, unit in ours} == {"ms", "s", "min", "h", "d"}
    assert found - ours == set(SPELLED)


def test_the_script_of_pages_spells_them_in_one_function():
    """That it agrees with ours is tested in a browser."""
    script = (ROOT / "ledger/parts/pages/static/page.js").read_text()
    found = re.search(r"  const duration = \(ms\) => \{\n(.*?)\n  \};\n", script, re.DOTALL)
    assert found is not None
    unit = re.compile(r"""(?:\+ "|\}) ?(ms|s|sec|min|h|d)["` ]""")
    assert {each[1] for each in unit.finditer(found[1])} == {"ms", "s", "min", "h", "d"}
    assert not unit.search(script.replace(found[0], ""))


def test_no_template_spells_a_duration():
    for path in (ROOT / "ledger/parts/pages/templates").iterdir():
        assert not re.search(r"\}\} ?(ms|s|sec|min|h|d)\b", path.read_text()), path


@for_each(
    "line",
    ['f"{a} ms"', 'f"{a:.1f} s"', 'f"{a}h"', '"%d s" % a', '"{} min".format(a)',
     'str(a) + " ms"', 'f"took {a // 60} minutes"', 'Column(heading="Duration, ms")'],
)  # fmt: skip
def test_the_scan_finds_a_second_spelling(tmp_path, line):
    (tmp_path / "one.py").write_text(f"x = {line}\n")
    assert list(spelled(tmp_path / "one.py"))
