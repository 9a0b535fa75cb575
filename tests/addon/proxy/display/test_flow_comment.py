"""Comments and pages of flows, and lines of the log, by figures worked out by hand."""

import pytest
from msgspec.structs import replace

from addon.metering.answers.transcript import Transcript
from addon.metering.settlement import Settled
from addon.proxy.display.exchange_log import line_of
from addon.proxy.display.flow_comment import BookedFlow, comment_of, page_of
from ledger.model.exchange import Outcome
from ledger.model.reading import UsageSource
from ledger.model.usage import Usage
from tests.ledger.written import charge, reading, settled
from tests.named import named

EXCHANGE = settled("one")


def booked(*charges, outcome=Outcome.COMPLETE, **read):
    exchange = replace(EXCHANGE, outcome=outcome, degraded=read.pop("degraded", None))
    usage = Usage(input_tokens=1204, cache_read_tokens=1024, output_tokens=87)
    return BookedFlow(
        exchange=exchange, reading=reading(exchange, **{"usage": usage, **read}), charges=charges
    )


IN = charge("uncached_input", 180, 10**7)
"""0.0018 USD"""
OUT = charge("output", 87, 1_494_253_0)
UNKNOWN = charge("output", 87, None, reason="no price for 'x'")


@pytest.mark.parametrize(
    ("one", "comment"),
    named(
        {
            "plain": (booked(IN), "in 1 204 (1 024 cached) out 87 · $0.0018"),
            "sum": (booked(IN, OUT), "in 1 204 (1 024 cached) out 87 · $0.0031"),
            "lower-bound": (booked(IN, UNKNOWN), "in 1 204 (1 024 cached) out 87 · ≥ $0.0018"),
            "unpriced": (booked(UNKNOWN), "in 1 204 (1 024 cached) out 87 · unpriced"),
            "no-line": (booked(), "in 1 204 (1 024 cached) out 87 · unpriced"),
            "tiny": (
                booked(charge("output", 1, 31), usage=Usage(output_tokens=1)),
                "in ? out 1 · $0.000000000031",
            ),
            "estimated": (
                booked(IN, usage_source=UsageSource.ESTIMATED, outcome=Outcome.CLIENT_LEFT),
                "in ~1 204 (1 024 cached) out ~87 · ~$0.0018 · client left",
            ),
            "error": (
                booked(usage_source=UsageSource.NONE, usage=Usage(), outcome=Outcome.HTTP_ERROR),
                "no usage reported · http error",
            ),
            "degraded": (
                booked(IN, degraded="KeyError"),
                "in 1 204 (1 024 cached) out 87 · $0.0018 · degraded",
            ),
        }
    ),
)
def test_a_comment_is_one_line(one, comment):
    assert comment_of([one]) == comment


def test_the_responses_of_a_websocket_are_added_up():
    empty = booked(usage_source=UsageSource.NONE, usage=Usage())
    assert comment_of([booked(IN), booked(IN), empty]) == (
        "3 responses · in 2 408 (2 048 cached) out 174 · $0.0036"
    )


def test_a_page_has_the_answer_its_usage_and_its_lines():
    calls = [{"function": {"name": "f", "arguments": "{}"}}, {}]
    message = {"content": "Hello", "reasoning": "Hm", "tool_calls": calls}
    transcript = Transcript()
    transcript.read("", {"choices": [{"message": message}]})
    page = page_of(booked(IN, charge("web_searches", 2, 10**10), UNKNOWN), transcript)
    for line in (
        "model-1 · example · openai.chat",
        "Hm",
        "Hello",
        "f({})",
        "(no name)()",
        '{"in": 100,  "out": 20}',
        "uncached_input                    180 x $10 per 1M = $0.0018  (list 1)",
        "web_searches                        2 x $0.01 each = $0.02  (list 1)",
        "output                             87  no price: no price for 'x'",
        "tokentee show one",
    ):
        assert line in page.split("\n")


def test_a_page_without_an_answer():
    page = page_of(
        booked(
            usage_source=UsageSource.NONE, usage=Usage(), usage_json=None, degraded="KeyError in x"
        ),
        None,
    )
    assert "degraded: KeyError in x" in page
    assert "usage source: none" in page
    assert "Answer" not in page
    transcript = Transcript()
    transcript.is_cut = True
    cut = page_of(booked(), transcript)
    assert "(no text)" in cut
    assert "the rest is not shown" in cut


LOGGED = settled("e", seconds=0.842)
OF_LOGGED = reading(LOGGED)


def test_a_line_names_model_tokens_cost_outcome_and_time():
    line = line_of(Settled(LOGGED, OF_LOGGED), lambda *_: (charge("output", 1, 3_100_000_000),))
    assert line == "model-1 in 100 (40 cached) out 20 $0.0031 complete 842 ms"


def test_what_is_not_known_is_no_zero():
    unknown = Settled(replace(LOGGED, settled_at=None), replace(OF_LOGGED, usage=Usage()))
    unpriced, priced = charge("output", 1, None), charge("output", 1, 10**12)
    assert line_of(unknown, lambda *_: ()) == "model-1 in - out - - complete -"
    assert " unpriced " in line_of(unknown, lambda *_: (unpriced,))
    assert " >= $1.00 " in line_of(unknown, lambda *_: (unpriced, priced))


def test_hostile_text_cannot_reach_the_terminal():
    exchange = replace(LOGGED, response_model="\x1b[2Jm\nx")
    line = line_of(Settled(exchange, OF_LOGGED), lambda *_: ())
    assert "\x1b" not in line
    assert "\n" not in line
