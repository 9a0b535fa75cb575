"""The rule of which exchanges are the same response, worked out by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.model.duplicates import Link, Member, content_digest, link

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
A = Member(id="a", opened_at=NOON, origin="o", response_id="r", content_digest="x")


def later(member: Member, **changes: object) -> Member:
    return replace(member, opened_at=member.opened_at + timedelta(seconds=1), **changes)


@pytest.mark.parametrize(
    ("members", "links"),
    [
        pytest.param([A], {"a": Link()}, id="alone"),
        pytest.param(
            [A, later(A, id="b")],
            {"a": Link(), "b": Link(duplicate_of="a")},
            id="the same response twice",
        ),
        pytest.param(
            [later(A, id="b"), A, later(later(A, id="c"))],
            {"a": Link(), "b": Link(duplicate_of="a"), "c": Link(duplicate_of="a")},
            id="the earliest counts, whatever the order",
        ),
        pytest.param(
            [replace(A, id="b"), A],
            {"a": Link(), "b": Link(duplicate_of="a")},
            id="at the same moment the smaller id counts",
        ),
        pytest.param(
            [A, later(A, id="b", content_digest="y")],
            {"a": Link(id_collision=True), "b": Link(id_collision=True)},
            id="other content, the same id",
        ),
        pytest.param(
            [A, later(A, id="b"), later(A, id="c", content_digest="y")],
            {
                "a": Link(id_collision=True),
                "b": Link(duplicate_of="a", id_collision=True),
                "c": Link(id_collision=True),
            },
            id="a duplicate in a group that collides",
        ),
        pytest.param(
            [A, later(A, id="b", origin="p")], {"a": Link(), "b": Link()}, id="another origin"
        ),
        pytest.param(
            [A, later(A, id="b", response_id="s")], {"a": Link(), "b": Link()}, id="another id"
        ),
        pytest.param(
            [replace(A, response_id=None), later(A, id="b", response_id=None)],
            {"a": Link(), "b": Link()},
            id="no response id is not the same response id",
        ),
        pytest.param(
            [A, later(A, id="b", content_digest=None), later(A, id="c", content_digest=None)],
            {"a": Link(), "b": Link(), "c": Link()},
            id="no digest is not the same digest, nor another one",
        ),
    ],
)
def test_links(members, links):
    assert link(members) == links


members = st.lists(
    st.builds(
        Member,
        id=st.sampled_from("abcdefgh"),
        opened_at=st.sampled_from([NOON, NOON + timedelta(seconds=1)]),
        origin=st.sampled_from("op"),
        response_id=st.sampled_from(["r", "s", None]),
        content_digest=st.sampled_from(["x", "y", None]),
    ),
    unique_by=lambda member: member.id,
)


@given(members, st.randoms())
def test_links_depend_on_the_set_alone(group, random):
    shuffled = list(group)
    random.shuffle(shuffled)
    assert link(shuffled) == link(group)


@given(members)
def test_every_response_is_counted_exactly_once(group):
    """Of those that can be told, one member counts for each origin, id and content."""
    links = link(group)
    counted = [m for m in group if links[m.id].duplicate_of is None and m.content_digest]
    responses = {(m.origin, m.response_id, m.content_digest) for m in counted if m.response_id}
    assert len([m for m in counted if m.response_id]) == len(responses)
    for member in group:
        first = links[member.id].duplicate_of
        assert first is None or links[first].duplicate_of is None


FACTS = {
    "response_model": "gpt-5",
    "created": 1_750_000_000,
    "finish_reason": "stop",
    "usage_json": '{"total_tokens":3}',
}


@pytest.mark.parametrize("name", FACTS)
def test_the_digest_covers_every_part(name):
    other = "x" if FACTS[name] != "x" else "y"
    digests = {
        content_digest(**FACTS),
        content_digest(**{**FACTS, name: other}),
        content_digest(**{**FACTS, name: None}),
        content_digest(**{**FACTS, name: ""}),
    }
    assert len(digests) == 4


def test_parts_do_not_run_into_each_other():
    one = content_digest(response_model="ab", created="c", finish_reason=None, usage_json=None)
    other = content_digest(response_model="a", created="bc", finish_reason=None, usage_json=None)
    assert one != other


def test_a_model_and_a_finish_reason_alone_say_too_little():
    assert content_digest(**{**FACTS, "created": None, "usage_json": None}) is None
    assert content_digest(**{**FACTS, "created": None}) is not None
    assert content_digest(**{**FACTS, "usage_json": None}) is not None


def test_a_lone_surrogate_is_digested():
    assert content_digest(**{**FACTS, "finish_reason": "\ud800"}) is not None
