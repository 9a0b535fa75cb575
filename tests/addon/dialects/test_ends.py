"""What a stream of each dialect ends with is data, and decides whether it was whole."""

import pytest

from addon.dialects import fetched, routes
from addon.dialects.clouds import flat
from addon.dialects.facts import Ending, Facts
from addon.dialects.openai import chat, responses
from addon.dialects.vendors import bedrock, cohere, mistral
from addon.metering.messages import End
from addon.metering.settlement import outcome_of
from ledger.model.exchange import Outcome
from tests.addon.feeding import metered
from tests.named import for_each

MARK = {
    "bedrock.converse",
    "cohere.chat",
    "cohere.embed",
    "cohere.generate",
    "cohere.rerank",
    "gemini.live",
    "ollama.chat",
    "ollama.embed",
    "ollama.generate",
    "openai.realtime",
    "openai.responses",
}
"""Streams of these end with a frame of their own, whatever else was said."""
CLOSE = {
    "anthropic.batch_results",
    "anthropic.sessions",
    "bedrock.agent",
    "bedrock.session",
    "gemini.batch",
    "mistral.batch_job",
    "xai.batch_results",
    "openai.agent_sessions",
    "openai.batch_output",
    "replicate.predictions",
    "unknown",
}
"""Lines or frames of which none is the last: the end of the body has to do."""


UNSURE = {"gemini.generate_content", "gemini.embeddings"}
"""A finish reason may stand before further chunks, where Google's own tools run."""


def test_what_each_dialect_ends_with() -> None:
    by_ending = {
        ending: {name for name, one in routes.DIALECTS.items() if one.ending is ending}
        for ending in Ending
    }
    assert by_ending[Ending.MARK] == MARK
    assert by_ending[Ending.CLOSE] == CLOSE
    assert by_ending[Ending.UNSURE] == UNSURE
    assert by_ending[Ending.FINISH] == set(routes.DIALECTS) - MARK - CLOSE - UNSURE


@for_each(
    "facts, is_whole",
    [
        pytest.param(Facts(), False, id="nothing-said"),
        pytest.param(Facts(finish_reason="stop"), True, id="finish-reason"),
        pytest.param(Facts(ended=True, ending=Ending.MARK), True, id="mark"),
        pytest.param(Facts(finish_reason="stop", ending=Ending.MARK), False, id="mark-missing"),
        pytest.param(Facts(ending=Ending.CLOSE), True, id="close"),
        pytest.param(Facts(ending=Ending.CLOSE, is_cut_inside=True), False, id="cut-inside"),
        pytest.param(
            Facts(finish_reason="stop", is_cut_inside=True), False, id="finish-then-cut-inside"
        ),
        pytest.param(Facts(ended=True, is_cut_inside=True), True, id="mark-then-cut-inside"),
    ],
)
def test_when_a_stream_is_whole(facts: Facts, is_whole: bool) -> None:
    assert facts.is_whole() is is_whole
    outcome = outcome_of(End.FINISHED, facts, status=200, streamed=True)
    assert outcome is (Outcome.COMPLETE if is_whole else Outcome.UPSTREAM_CUT)


FRAME = b'data: {"id":"stream:chat:1","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
FINISH = (
    b'data: {"id":"stream:chat:1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)


@for_each(
    "body, outcome",
    [
        pytest.param(FRAME * 3, Outcome.COMPLETE, id="closed-between-frames"),
        pytest.param(FRAME * 3 + FRAME[:40], Outcome.UPSTREAM_CUT, id="inside-a-frame"),
        pytest.param(FRAME * 3 + b"data:", Outcome.UPSTREAM_CUT, id="inside-a-field"),
        pytest.param(FRAME * 3 + b": ping", Outcome.COMPLETE, id="a-comment"),
        pytest.param(FRAME * 3 + FRAME.strip(), Outcome.COMPLETE, id="whole-without-a-blank-line"),
        pytest.param(FRAME + FINISH, Outcome.COMPLETE, id="finish-reason"),
        pytest.param(FRAME + FINISH + FRAME[:30], Outcome.COMPLETE, id="after-its-finish-reason"),
        pytest.param(FRAME * 100 + FRAME[:40], Outcome.UPSTREAM_CUT, id="after-many-frames"),
    ],
)
def test_a_stream_that_may_end_by_closing_may_not_end_inside_a_frame(
    body: bytes, outcome: Outcome
) -> None:
    for size in (1, 7, 4_000):
        meter = metered(chat.CHAT, body, size=size)
        found = outcome_of(End.FINISHED, meter.facts, status=200, streamed=True)
        assert found is outcome, size


def test_a_stream_of_messages_may_not_end_inside_one() -> None:
    from tests.addon.framing.test_eventstream import header, message

    whole = message(header(":event-type", "chunk"), b'{"bytes":"e30="}')
    for rest, is_cut in ((b"", False), (whole[:9], True)):
        kind = "application/vnd.amazon.eventstream"
        meter = metered(routes.DIALECTS["bedrock.invoke"], whole + rest, kind)
        assert meter.facts.is_cut_inside is is_cut


def test_a_state_of_a_thing_is_no_finish_reason() -> None:
    for body, expected in (
        ({"id": "file-1", "object": "file", "status": "processed"}, None),
        ({"id": "batch_1", "object": "batch", "status": "validating"}, None),
        ({"id": "x", "status": "success"}, "success"),
    ):
        facts = Facts(is_document=True)
        routes.UNKNOWN.dialect.read(facts, "", body)
        assert facts.finish_reason == expected
    facts = Facts()
    routes.UNKNOWN.dialect.read(facts, "error", {"error": "no"})
    assert facts.error is not None
    assert routes.UNKNOWN.dialect.usage_of({}, facts).input_tokens is None


def test_frames_that_say_nothing_change_nothing() -> None:
    for dialect, body in (
        (responses.REALTIME, {"type": "session.created"}),
        (cohere.CHAT, {"type": "content-start"}),
        (mistral.CONVERSATIONS, {"type": "tool.execution.started"}),
        (bedrock.INVOKE, {"bytes": "A"}),
        (bedrock.INVOKE, {"bytes": 5}),
        (flat.REPLICATE, {"id": "p", "status": "processing"}),
    ):
        facts = Facts()
        dialect.read(facts, "chunk", body)
        assert (facts.ended, facts.finish_reason, facts.usage) == (False, None, None)


def test_a_batch_of_very_many_models_says_what_it_left_out() -> None:
    facts = Facts()
    for n in range(fetched.GROUPS_MAX + 3):
        answer = {"choices": [], "model": f"m{n}", "usage": {"prompt_tokens": 1}}
        fetched.OPENAI_FILE.read(facts, "", {"custom_id": "c", "response": {"body": answer}})
    assert facts.usage is not None
    usage = fetched.usage_of(facts.usage, facts)
    assert len(usage.further) == fetched.GROUPS_MAX - 1
    assert usage.remarks == ("3 answers left out",)
    fetched.OPENAI_FILE.read(facts, "", {"custom_id": "c", "response": {"body": {"error": {}}}})
    assert facts.usage["results"] == fetched.GROUPS_MAX + 3


GEMINI = (
    b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":22,"candidatesTokenCount":150}}\r\n\r\n'
)


@for_each(
    "end, outcome",
    [
        (End.FINISHED, Outcome.COMPLETE),
        (End.UPSTREAM_BROKE, Outcome.UPSTREAM_CUT),
        (End.CLIENT_LEFT, Outcome.COMPLETE),
    ],
)
def test_a_finish_reason_of_gemini_is_no_end_where_the_connection_breaks(
    end: End, outcome: Outcome
) -> None:
    """With server-side tools it stands on the first call, and the figures go on to grow."""
    meter = metered(routes.DIALECTS["gemini.generate_content"], GEMINI)
    assert outcome_of(end, meter.facts, status=200, streamed=True) is outcome
