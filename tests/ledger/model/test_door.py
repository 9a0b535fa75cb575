"""The door: whatever comes from the wire, what goes on is what both databases take."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.model import door
from ledger.model.columns import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, columns_of
from ledger.model.exchange import Exchange, Quota, QuotaKind
from ledger.model.money import AMOUNT_MAX
from ledger.model.usage import COUNT_MAX, FurtherUsage, Usage
from tests.ledger.written import NOON, opened, reading, settled
from tests.named import for_each

EAST = timezone(timedelta(hours=14))
WEST = timezone(timedelta(hours=-12))


def admitted(usage=None, **changes):
    """The reading of an exchange, behind the door."""
    exchange = settled("a")
    changes = changes if usage is None else {"usage": usage, **changes}
    return door.admitted(exchange, replace(reading(exchange), **changes))[1]


def test_what_is_fine_passes_as_it_is():
    exchange = settled("a", tags={"team": "search"}, first_byte_at=NOON, http_status=200)
    usage = Usage(
        input_tokens=COUNT_MAX,
        output_tokens=0,
        tool_units={"web_search": 2},
        reported_cost_picousd=AMOUNT_MAX,
        remarks=("a remark",),
        further=(FurtherUsage(kind="compaction", model=None, usage=Usage(input_tokens=1)),),
    )
    read = replace(reading(exchange), usage=usage)
    assert door.admitted(exchange, read) == (exchange, read)
    assert door.admitted(exchange, read)[0] is exchange
    assert door.admitted(exchange, read)[1] is read
    assert door.admitted(opened("b"), None) == (opened("b"), None)


@for_each(
    "given, kept",
    [
        pytest.param("gpt-5", "gpt-5", id="fine"),
        pytest.param("", "", id="empty"),
        pytest.param("Grüße 東京 🎉", "Grüße 東京 🎉", id="beyond ASCII"),
        pytest.param("a\u00a0b\u200db", "a\u00a0b\u200db", id="unprintable, and no control"),
        pytest.param("a\ud800b", "a\ufffdb", id="first half of a pair"),
        pytest.param("a\udfffb", "a\ufffdb", id="second half of a pair"),
        pytest.param("a\0b", "a\ufffdb", id="NUL"),
        pytest.param("a\r\n\tb", "a\ufffd\ufffd\ufffdb", id="lines"),
        pytest.param("\x1b[31m\x7f\x9b", "\ufffd[31m\ufffd\ufffd", id="terminal"),
        pytest.param("x" * 256, "x" * 256, id="as long as it may be"),
        pytest.param("x" * 257, "x" * 255 + "…", id="too long"),
        pytest.param("\0" * 1_000_000, "\ufffd" * 255 + "…", id="long and bad"),
    ],
)
def test_texts(given, kept):
    assert door.text_of(given) == kept
    assert door.text_of(kept) == kept


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=400))
def test_a_text_that_passed_can_be_written_and_passes_again(text):
    kept = door.text_of(text)
    kept.encode()
    assert len(kept) <= NAME_CHARACTERS_MAX
    assert not door._UNPRINTABLE.search(kept)
    assert door.text_of(kept) == kept


TEXTS = [name for name, (kind, _) in columns_of(Exchange).items() if kind in (str, str | None)]


@for_each("name", TEXTS)
def test_each_text_is_cut_to_its_column(name):
    longest = columns_of(Exchange)[name][1].characters_max
    assert longest in (NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX)
    long: dict[str, Any] = {name: "\ud800" + "x" * 5_000}
    exchange, _ = door.admitted(settled("a", **long), None)
    kept = getattr(exchange, name)
    assert kept == "\ufffd" + "x" * (longest - 2) + "…"


def test_a_reading_follows_the_id_and_the_moment_of_its_exchange():
    exchange = settled("a\0", at=datetime(1969, 12, 31, tzinfo=UTC))
    exchange, read = door.admitted(exchange, reading(exchange))
    assert read is not None
    assert exchange.id == read.exchange_id == "a\ufffd"
    assert exchange.opened_at == read.opened_at == door.UNKNOWN_MOMENT
    assert read.read_at == door.UNKNOWN_MOMENT


@for_each(
    "given, kept",
    [
        (None, None),
        (NOON, NOON),
        (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None),
        (datetime(1, 1, 1, tzinfo=UTC), None),
        (datetime(1, 1, 1, tzinfo=EAST), None),
        (datetime(1970, 1, 1, 13, tzinfo=EAST), None),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),) * 2,
        (datetime(9999, 12, 31, 13, tzinfo=WEST), None),
        (datetime(2026, 11, 3, 2, tzinfo=EAST), NOON),
        (datetime(2026, 11, 2, 12), NOON),  # as some files have it
    ],
)
def test_moments(given, kept):
    found = door.moment_of(given)
    assert found == kept
    assert found is None or found.tzinfo is UTC


def test_moments_of_an_exchange_that_cannot_be():
    never = datetime(1, 1, 1, tzinfo=UTC)
    exchange, _ = door.admitted(settled("a", settled_at=never, first_byte_at=never), None)
    assert (exchange.settled_at, exchange.first_byte_at) == (NOON, None)
    exchange, _ = door.admitted(settled("a", at=never), None)
    assert exchange.opened_at == exchange.settled_at == door.UNKNOWN_MOMENT
    exchange, _ = door.admitted(opened("a", at=never), None)
    assert (exchange.opened_at, exchange.settled_at) == (door.UNKNOWN_MOMENT, None)


@for_each("count", [-1, COUNT_MAX + 1, 2**63, 10**30, float("nan"), 1.5, True, "7"])
def test_what_cannot_be_a_count(count):
    exchange, _ = door.admitted(settled("a", response_bytes=count), None)
    assert exchange.response_bytes is None
    read = admitted(Usage(input_tokens=count, output_tokens=3))
    assert read.usage == Usage(output_tokens=3)


@for_each("amount", [-1, AMOUNT_MAX + 1, 2**63, float("inf"), 0.5, True, "7"])
def test_what_cannot_be_an_amount(amount):
    read = admitted(Usage(reported_cost_picousd=amount, reported_upstream_cost_picousd=AMOUNT_MAX))
    assert read.usage == Usage(reported_upstream_cost_picousd=AMOUNT_MAX)


def test_tags():
    many = {f"tag{number}": "v" for number in range(1_000)}
    hostile = {"a\ud800": "\x1b[31m", "n" * 300: "v" * 300, "count": 7, "none": None, "dict": {}}
    exchange, _ = door.admitted(settled("a", tags=hostile), None)
    assert exchange.tags == {"a\ufffd": "\ufffd[31m", "n" * 255 + "…": "v" * 255 + "…"}
    exchange, _ = door.admitted(settled("a", tags=many), None)
    assert list(exchange.tags) == list(many)[: door.ENTRIES_MAX]


def test_tool_units():
    hostile: dict[str, Any] = {
        "a\0": 1,
        "less": -1,
        "more": COUNT_MAX + 1,
        "text": "7",
        "none": None,
        "list": [],
    }
    assert admitted(Usage(tool_units=hostile)).usage.tool_units == {"a\ufffd": 1}
    many = {f"unit{number}": 1 for number in range(1_000)}
    assert len(admitted(Usage(tool_units=many)).usage.tool_units) == door.ENTRIES_MAX


def test_remarks_and_further_iterations():
    further = FurtherUsage(kind="k\0", model="m\0", usage=Usage(input_tokens=-1, remarks=("r\0",)))
    usage = admitted(Usage(further=(further,) * 100, remarks=("x" * 2_000,) * 100)).usage
    assert len(usage.further) == len(usage.remarks) == door.ENTRIES_MAX
    assert usage.remarks[0] == "x" * (TEXT_CHARACTERS_MAX - 1) + "…"
    assert usage.further[0] == FurtherUsage(
        kind="k\ufffd", model="m\ufffd", usage=Usage(remarks=("r\ufffd",))
    )


@for_each(
    "given, kept",
    [
        ('{"in":  1}', '{"in":  1}'),
        ('{"a": "é"}', '{"a": "é"}'),
        ('{"a": "\ud800\0"}', '{"a": "?\ufffd"}'),
        ('"' + "x" * (door.DOCUMENT_BYTES_MAX - 2) + '"',) * 2,
        ("é" * (door.DOCUMENT_BYTES_MAX // 2),) * 2,
    ],
    ids=["fine", "beyond ASCII", "bad characters", "as long as it may be", "in bytes"],
)
def test_documents(given, kept):
    assert door.document_of(given) == (kept, False)
    assert admitted(usage_json=given).usage.remarks == ()


@for_each("character", ["x", '"', "\x01", "é", "\ud800", "🎉", "\0"])
def test_a_document_that_is_too_long_is_cut_and_remarked(character):
    text = character * 70_000
    read = admitted(usage_json=text)
    assert len(read.usage_json.encode()) <= door.DOCUMENT_BYTES_MAX
    kept = json.loads(read.usage_json)
    assert kept["cut"] is True
    assert kept["bytes"] == len(text.encode("utf-8", "replace"))
    assert len(kept["start"]) == door.CUT_CHARACTERS
    assert read.usage.remarks == ("the usage object is longer than 65536 bytes and was cut",)
    again = admitted(usage_json=read.usage_json)
    assert (again.usage_json, again.usage.remarks) == (read.usage_json, ())
    assert admitted(usage_json=None).usage_json is None


def test_a_quota_beyond_the_bounds_is_not_known():
    given = Quota(
        window="w\n",
        window_name="w",
        window_minutes=2**62,
        kind=QuotaKind.PLAN,
        limit=-1,
        status="s\n",
        resets_at=datetime(1, 1, 1, tzinfo=UTC),
    )
    plain = Quota(window="5h", window_name="5h", window_minutes=300, kind=QuotaKind.RATE)
    for quotas in ((given,), (plain,)):
        exchange, _ = door.admitted(settled("a", quotas=quotas), None)
        (quota,) = exchange.quotas
        if quotas == (plain,):
            assert quota == plain
        else:
            assert (quota.window_minutes, quota.limit, quota.resets_at) == (None, None, None)
            assert (quota.window, quota.status) == ("w\ufffd", "s\ufffd")
