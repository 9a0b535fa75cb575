"""One exchange by its id, its response's id, or how either begins."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from ledger.model.errors import LedgerError
from ledger.reports.layout import unique_beginning
from ledger.reports.lookup import AmbiguousError, candidates, find
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled, reading, settled

READ = reading(input_tokens=10, output_tokens=5)


def entries():
    def one(name, response_id, **more):
        return settled(replace(exchange(), id=name, response_id=response_id, **more)), READ

    yield one("flow-1", "chatcmpl-abcdef")
    yield one("flow-2", "chatcmpl-abcxyz", content_digest="d1")
    yield one(
        "flow-3",
        "chatcmpl-abcxyz",
        content_digest="d1",
        opened_at=NOVEMBER + timedelta(seconds=1),
    )
    yield one("same-1", "chatcmpl-1", content_digest="d1")
    yield one("same-2", "chatcmpl-1", content_digest="d2")
    yield one("Upper", "100%_sure")


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries())


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("flow-1", "flow-1"),
        ("chatcmpl-abcdef", "flow-1"),
        ("chatcmpl-abcd", "flow-1"),
        ("same-2", "same-2"),
        ("chatcmpl-abcxyz", "flow-2"),
        ("chatcmpl-abcx", "flow-2"),
        ("flow-3", "flow-3"),
        ("100%", "Upper"),
    ],
)
def test_what_is_found(engine, word, expected):
    assert find(engine, word).exchange["id"] == expected


def test_a_response_seen_again_is_named_with_the_one_that_counts(engine):
    assert find(engine, "flow-2").duplicates == ("flow-3",)
    assert find(engine, "flow-3").exchange["duplicate_of"] == "flow-2"


@pytest.mark.parametrize("word", ["nope", "chat%", "flo", "upper", "", "____"])
def test_what_is_not_found(engine, word):
    with pytest.raises(LedgerError, match="no exchange has the id or response id"):
        find(engine, word)


def test_ids_that_collide_have_to_be_told_apart(engine):
    """BerriAI/litellm#28376: `chatcmpl-1` is sequential at some providers; both count."""
    with pytest.raises(AmbiguousError, match="2 exchanges are called 'chatcmpl-1'") as error:
        find(engine, "chatcmpl-1")
    table = candidates(engine, error.value)
    assert [row[0] for row in table.rows] == ["same-1", "same-2"]
    assert [column.name for column in table.columns][1:5] == [
        "opened_at",
        "model",
        "input_tokens",
        "output_tokens",
    ]
    assert {row[6] for row in table.rows} == {"chatcmpl-1"}


def test_ids_are_shown_as_short_as_they_are_unique():
    ids = ["0123456789-a", "0123456789-b", "f" * 36, "short"]
    assert [unique_beginning(each, ids) for each in ids] == [*ids[:2], "f" * 8, "short"]


def test_a_beginning_that_several_share(engine):
    with pytest.raises(AmbiguousError) as error:
        find(engine, "flow-")
    rows = candidates(engine, error.value).rows
    assert [row[0] for row in rows] == ["flow-1", "flow-2", "flow-3"]


def test_readings_and_charges_come_with_it(engine):
    found = find(engine, "flow-1")
    assert [row["revision"] for row in found.readings] == [1]
    assert [(row["line"], row["quantity"]) for row in found.charges] == [
        ("uncached_input", 10),
        ("output", 5),
    ]
    assert found.past_charges == ()
