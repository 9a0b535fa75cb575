"""Gemini Live over WebSocket: each turn is an exchange of its own."""

import json
from typing import Any

from addon.dialects import routes
from addon.dialects.facts import AnswerContext
from addon.metering.websocket import MESSAGE_BYTES_MAX, Closed, LiveTurns, Opened

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
AUDIO = {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "AAAA"}}]}}
USAGE = {
    "promptTokenCount": 120,
    "responseTokenCount": 40,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 64,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 20},
        {"modality": "AUDIO", "tokenCount": 100},
    ],
    "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 64}],
    "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": 38}],
    "totalTokenCount": 165,
}


def live() -> LiveTurns:
    route = routes.match_websocket("generativelanguage.googleapis.com", PATH)
    assert route is not None
    return LiveTurns(route, context=AnswerContext(provider="gcp.gemini"))


def say(turns: LiveTurns, **message: Any) -> list[Opened | Closed]:
    return turns.server_message(json.dumps(message).encode())


def test_two_turns_are_two_exchanges() -> None:
    turns = live()
    setup = {"setup": {"model": "models/gemini-live-2.5-flash"}}
    assert turns.client_message(json.dumps(setup).encode()) == []
    assert turns.client_message(b'{"realtimeInput": {"audio": {}}}') == []
    assert say(turns, setupComplete={}) == []
    (opened,) = say(turns, serverContent=AUDIO)
    assert isinstance(opened, Opened)
    assert (opened.key, opened.request.model) == (1, "models/gemini-live-2.5-flash")
    assert say(turns, serverContent=AUDIO) == []
    assert say(turns, serverContent={"generationComplete": True}) == []
    (closed,) = say(turns, serverContent={"turnComplete": True}, usageMetadata=USAGE)
    assert isinstance(closed, Closed)
    usage = closed.meter.usage()
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (120, 45, 5)
    assert (usage.cache_read_tokens, usage.input_audio_tokens) == (64, 100)
    assert usage.output_audio_tokens == 38
    assert usage.tool_units == {"cache_read_audio_tokens": 64}
    assert closed.meter.facts.is_whole()
    assert closed.meter.facts.response_model == "models/gemini-live-2.5-flash"
    second = say(turns, serverContent={"turnComplete": True}, usageMetadata={"promptTokenCount": 9})
    assert [type(one) for one in second] == [Opened, Closed]
    assert second[0].key == 2


def test_a_turn_with_a_tool_call_goes_on_until_it_is_complete() -> None:
    turns = live()
    assert len(say(turns, toolCall={"functionCalls": [{}]}, usageMetadata=USAGE)) == 1
    assert say(turns, serverContent={"interrupted": True}) == []
    (closed,) = say(turns, serverContent={"turnComplete": True})
    assert isinstance(closed, Closed)
    assert closed.meter.facts.finish_reason == "interrupted"
    assert closed.meter.usage().input_tokens == 120


def test_usage_outside_a_turn_and_errors_are_exchanges_of_their_own() -> None:
    turns = live()
    assert [type(one) for one in say(turns, usageMetadata=USAGE)] == [Opened, Closed]
    opened, closed = say(turns, error={"code": 400, "message": "no", "status": "INVALID"})
    assert isinstance(closed, Closed)
    assert closed.meter.facts.error is not None
    assert isinstance(opened, Opened)


def test_a_session_that_ends_cuts_its_turn() -> None:
    turns = live()
    say(turns, serverContent=AUDIO)
    (closed,) = turns.end()
    assert not closed.meter.facts.is_whole()
    assert turns.end() == []


def test_what_is_no_message_changes_nothing() -> None:
    turns = live()
    assert turns.server_message(b'{"serverContent": ') == []
    assert turns.server_message(b'"error"' + b" " * MESSAGE_BYTES_MAX) == []
    assert turns.client_message(b'{"setup": {"model": 5}}') == []
    assert turns.client_message(b'{"setup": ') == []


def test_a_model_that_reports_deltas_has_their_sum() -> None:
    turns = live()
    setup = {"setup": {"model": "models/gemini-3.5-live-translate-preview"}}
    turns.client_message(json.dumps(setup).encode())
    (_opened,) = say(turns, serverContent=AUDIO)
    for count in (50, 25, 25, 25, 25):
        delta = {
            "promptTokenCount": count,
            "responseTokenCount": count,
            "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": count}],
            "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": count}, {}],
        }
        assert say(turns, usageMetadata=delta) == []
    (closed,) = say(turns, serverContent={"turnComplete": True})
    assert isinstance(closed, Closed)
    usage = closed.meter.usage()
    assert (usage.input_tokens, usage.output_tokens) == (150, 150)
    assert (usage.input_audio_tokens, usage.output_audio_tokens) == (150, 150)


def test_what_grounded_a_turn_is_counted_behind_its_content() -> None:
    """https://ai.google.dev/api/live: `serverContent.groundingMetadata`, in a message of its own."""
    turns = live()
    say(turns, serverContent=AUDIO)
    say(turns, serverContent={"groundingMetadata": {"webSearchQueries": ["a", "", "b", "a"]}})
    usage = {"promptTokenCount": 9, "toolUsePromptTokenCount": 70, "responseTokenCount": 4}
    (closed,) = say(turns, serverContent={"turnComplete": True}, usageMetadata=usage)
    assert isinstance(closed, Closed)
    assert closed.meter.usage().input_tokens == 79
    assert closed.meter.usage().tool_units == {"web_searches": 2, "input_search_tokens": 70}
