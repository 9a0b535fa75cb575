"""The address of a live page, read and written."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from ledger.figures.figures import Figures
from ledger.model.errors import LedgerError
from ledger.pages.live import asked
from ledger.pages.sections import PageRow
from tests.ledger.pages.conftest import NOW

TODAY = datetime(2026, 11, 21, tzinfo=UTC)


def parse(*pairs):
    return asked.parse(pairs, now=NOW)


def row(value, **more):
    return PageRow(word="model", value=value, label="x", sums=Figures(), share=Decimal(0), **more)


def test_without_a_word_it_is_thirty_days():
    found = parse()
    assert found.question.period.since == TODAY - timedelta(days=29)
    assert found.question.period.until is None
    assert found.time == (("days", "30"),)
    assert [name for name, _, is_current in found.presets() if is_current] == ["30 days"]


def test_since_and_until_as_report_takes_them():
    found = parse(("since", "2026-11-01"), ("until", "2026-11-08"), ("only", "model=a=b"))
    assert found.question.period.until == datetime(2026, 11, 8, tzinfo=UTC)
    assert found.question.only == (("model", "a=b"),)
    assert found.word("since") == "2026-11-01"
    assert found.section("odd") == (
        "/section/odd?since=2026-11-01&until=2026-11-08&only=model%3Da%3Db"
    )
    assert parse(("until", "2026-11-08")).question.period.since is None


def test_links_keep_the_period_and_add_the_line():
    found = parse(("days", "7"), ("only", "key=k"))
    assert found.link(row("gpt-5")) == "/?days=7&only=key%3Dk&only=model%3Dgpt-5"
    assert found.link(row("a&b", last_time="2026-11-20"), "rows") == (
        "/rows?days=7&only=key%3Dk&at=2026-11-20&row=model%3Da%26b"
    )
    assert found.link(row("x"), "rows") == "/rows?days=7&only=key%3Dk&row=model%3Dx"
    assert found.link(None) == "/requests?days=7&only=key%3Dk"
    assert list(found.chosen("/")) == [("key", "k", "/?days=7")]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([("days", "0")], "not a number of days: '0'"),
        ([("days", "٣")], "not a number of days"),
        ([("days", "9" * 50)], "not a number of days"),
        ([("since", "soon")], "not a moment: 'soon'"),
        ([("since", "2026-11-08"), ("until", "2026-11-01")], "turn them round"),
        ([("only", "model")], "not a condition: 'model'"),
        ([("only", "=x")], "not a condition"),
        ([("only", "model=" + "x" * 600)], "not a condition"),
        ([("only", "model=x")] * 11, "11 conditions; at most 10"),
    ],
)
def test_what_cannot_be_read_is_named(pairs, reason):
    with pytest.raises(LedgerError, match=reason):
        parse(*pairs)
