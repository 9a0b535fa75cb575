"""The parts of the input add up to it."""

import random
from typing import Any

from ledger.model.segments import Kind, Part, Segment, Segments
from ledger.why.context import PARTS, Context

CHANCE = random.Random(29)


def segment(kind: Kind, part: Part, name: str, size: int = 100) -> Segment:
    return Segment(kind, part, name, size, 0, CHANCE.randbytes(8))


CALL = segment(Kind.MESSAGES, Part.TOOL_CALL, "grep")
SEGMENTS = Segments(
    (
        segment(Kind.TOOLS, Part.TEXT, "grep", 300),
        segment(Kind.TOOLS, Part.TEXT, "bash", 500),
        segment(Kind.SYSTEM, Part.TEXT, "system", 1_000),
        segment(Kind.SYSTEM, Part.TEXT, "developer", 1_000),
        segment(Kind.MESSAGES, Part.JOINED, "", 7_777),
        segment(Kind.MESSAGES, Part.TEXT, "user"),
        CALL,
        segment(Kind.MESSAGES, Part.TOOL_RESULT, "user"),
        segment(Kind.MESSAGES, Part.IMAGE, "user"),
    )
)


def test_rows_add_up_and_unused_tools_are_named():
    context = Context()
    for tokens, cost in ((1_001, 77), (13, 5), (7, None)):
        context.add("s", "a", SEGMENTS, input_tokens=tokens, picousd=cost)
    rows: list[Any] = list(context.rows())
    assert context.requests() == 3
    assert sum(row["tokens"] for row in rows) == 1_021
    assert sum(row["list_value_usd"] for row in rows) * 10**12 == 82
    assert {row["part"] for row in rows} == set(PARTS)
    places = {(row["part"], row["name"]): (row["calls"], row["unused"]) for row in rows}
    assert places == {
        ("tools", "grep"): (1, False),
        ("tools", "bash"): (0, True),
        ("system", "system"): (None, None),
        ("messages", "older messages"): (None, None),
        ("messages", "user"): (None, None),
        ("messages", "assistant"): (None, None),
        ("tool_results", "user"): (None, None),
        ("images", "user"): (None, None),
    }
    assert rows[0]["name"] == "older messages"
    assert rows[0]["bytes"] == 3 * 7_777


def test_a_call_is_of_its_session_and_counts_once():
    context = Context()
    other = Segment(Kind.MESSAGES, Part.TOOL_CALL, "grep", 10, 0, b"another!")
    tool = segment(Kind.TOOLS, Part.TEXT, "grep")
    for session, calls in (("s", (CALL,)), ("s", (CALL, other)), ("t", ())):
        context.add(session, None, Segments((tool, *calls)), input_tokens=100, picousd=None)
    found = {row["session"]: row["calls"] for row in context.rows() if row["part"] == "tools"}
    assert found == {"s": 2, "t": 0}
    assert {row["list_value_usd"] for row in context.rows()} == {None}


def test_sizes_of_nothing_are_shared_too():
    context = Context()
    empty = Segments((segment(Kind.MESSAGES, Part.TEXT, "user", 0),))
    context.add(None, None, empty, input_tokens=3, picousd=9)
    assert [row["tokens"] for row in context.rows()] == [3]
