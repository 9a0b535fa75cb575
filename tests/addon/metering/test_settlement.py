"""The states of one exchange: which end is which outcome, and what the ledger is told."""

from datetime import UTC, datetime

import pytest

from addon.dialects.facts import Ending, Facts
from addon.dialects.routes import DIALECTS
from addon.metering.answers.meter import Meter
from addon.metering.requests.messages import End
from addon.metering.settlement import outcome_of, result_of
from ledger.model.exchange import Outcome, State
from ledger.model.reading import UsageSource
from tests.ledger.written import opened
from tests.named import named

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAID_DONE = Facts(ended=True, finish_reason="stop")
SAID_FINISH = Facts(finish_reason="stop")
WHOLE_DOCUMENT = Facts(ended=True, is_document=True)
SAID_NOTHING = Facts()
SAID_ERROR = Facts(failed=True, ended=True)
CLOSES = Facts(ending=Ending.CLOSE)
OVER, LEFT, BROKE, CUT = End.FINISHED, End.CLIENT_LEFT, End.UPSTREAM_BROKE, Outcome.UPSTREAM_CUT


@pytest.mark.parametrize(
    ("end", "facts", "status", "streamed", "expected"),
    named(
        {
            "done": (OVER, SAID_DONE, 200, True, Outcome.COMPLETE),
            "no-DONE-but-finish": (OVER, SAID_FINISH, 200, True, Outcome.COMPLETE),
            "close-is-its-end": (OVER, CLOSES, 200, True, Outcome.COMPLETE),
            "rst-that-looks-like-an-end": (OVER, SAID_NOTHING, 200, True, CUT),
            "plain-document": (OVER, SAID_NOTHING, 200, False, Outcome.COMPLETE),
            "client-closes-at-DONE": (LEFT, SAID_DONE, 200, True, Outcome.COMPLETE),
            "client-leaves-before-usage": (LEFT, SAID_FINISH, 200, True, Outcome.CLIENT_LEFT),
            "client-leaves-before-headers": (LEFT, SAID_NOTHING, None, True, Outcome.CLIENT_LEFT),
            "cut": (BROKE, SAID_NOTHING, 200, True, CUT),
            "refused": (BROKE, SAID_NOTHING, None, False, CUT),
            "document-shorter-than-its-length": (BROKE, WHOLE_DOCUMENT, 200, False, CUT),
            "client-leaves-behind-the-document": (
                LEFT,
                WHOLE_DOCUMENT,
                200,
                False,
                Outcome.COMPLETE,
            ),
            "cut-at-DONE": (BROKE, SAID_DONE, 200, True, Outcome.COMPLETE),
            "proxy-stopped": (End.STOPPED, SAID_NOTHING, 200, True, Outcome.LOST),
            "error-frame": (OVER, SAID_ERROR, 200, True, Outcome.ERROR_FRAME),
            "client-leaves-on-the-error": (LEFT, SAID_ERROR, 200, True, Outcome.ERROR_FRAME),
            "http-error": (OVER, SAID_ERROR, 429, False, Outcome.HTTP_ERROR),
            "http-error-cut": (BROKE, SAID_NOTHING, 500, False, Outcome.HTTP_ERROR),
        }
    ),
)
def test_outcomes(end: End, facts: Facts, status, streamed: bool, expected: Outcome):
    assert outcome_of(end, facts, status=status, streamed=streamed) is expected


def fed(body: bytes) -> Meter:
    meter = Meter(DIALECTS["openai.chat"], content_type="text/event-stream")
    meter.feed(body)
    meter.end()
    return meter


def settled(body: bytes | None, end: End):
    return result_of(
        opened("flow-1", at=NOW, streamed=True),
        end=end,
        status=200,
        meter=fed(body) if body is not None else None,
        estimate_input=lambda: 11,
        now=NOW,
    )


WORD = b'data: {"id":"c1","model":"m","created":5,"choices":[{"delta":{"content":"hello there world"}}]}\n\n'
STOP = b'data: {"id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


def test_a_complete_exchange_is_reported():
    exchange, reading = settled(WORD + STOP + USAGE + DONE, End.FINISHED)
    assert exchange.state is State.SETTLED
    assert exchange.outcome is Outcome.COMPLETE
    assert (exchange.response_id, exchange.finish_reason) == ("c1", "stop")
    assert reading.usage_source is UsageSource.REPORTED
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 2)
    assert reading.estimated_output_tokens is None
    assert (reading.exchange_id, reading.opened_at) == (exchange.id, exchange.opened_at)


def test_what_was_reported_before_a_cut_is_kept_as_partial():
    running = WORD.replace(b"]}\n", b'],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n')
    exchange, reading = settled(running * 3, End.UPSTREAM_BROKE)
    assert exchange.outcome is Outcome.UPSTREAM_CUT
    assert reading.usage_source is UsageSource.PARTIAL
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 1)


def test_an_aborted_stream_that_reported_nothing_is_estimated():
    exchange, reading = settled(WORD * 50, End.CLIENT_LEFT)
    assert exchange.outcome is Outcome.CLIENT_LEFT
    assert reading.usage_source is UsageSource.ESTIMATED
    assert reading.usage.input_tokens == 11
    assert reading.usage.output_tokens == reading.estimated_output_tokens
    assert 75 <= (reading.usage.output_tokens or 0) <= 300  # 150 words in 50 chunks
    assert reading.usage_json is None


def test_a_complete_stream_without_usage_is_not_estimated():
    _, reading = settled(WORD + STOP + DONE, End.FINISHED)
    assert reading.usage_source is UsageSource.NONE
    assert reading.usage.output_tokens is None


def test_an_exchange_without_an_answer_settles():
    exchange, reading = settled(None, End.UPSTREAM_BROKE)
    assert exchange.outcome is Outcome.UPSTREAM_CUT
    assert exchange.response_id is None
    assert exchange.content_digest is None
    assert reading.usage_source is UsageSource.NONE


def test_the_same_response_has_the_same_content_digest_and_another_has_not():
    first, _ = settled(WORD + STOP + USAGE + DONE, End.FINISHED)
    again, _ = settled(WORD + WORD + STOP + USAGE + DONE, End.FINISHED)
    other, _ = settled((WORD + STOP + USAGE).replace(b":2}", b":4}") + DONE, End.FINISHED)
    assert first.content_digest == again.content_digest
    assert first.content_digest != other.content_digest


DOCUMENT = (
    b'{"id":"c1","model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
)


@pytest.mark.parametrize("kept", [*range(1, len(DOCUMENT), 7), len(DOCUMENT) - 1, len(DOCUMENT)])
def test_a_document_is_complete_only_if_it_is_whole(kept: int):
    """Closing the connection ends the body in order, wherever that cut it."""
    meter = Meter(DIALECTS["openai.chat"], content_type="application/json")
    meter.feed(DOCUMENT[:kept])
    meter.end()
    found = outcome_of(End.FINISHED, meter.facts, status=200, streamed=False)
    assert (found is Outcome.COMPLETE) is (kept == len(DOCUMENT))
