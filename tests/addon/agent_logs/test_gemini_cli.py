"""Gemini CLI's logs, as one document and as lines."""

import pytest

from addon.agent_logs import gemini_cli
from addon.agent_logs.call import booked
from tests.addon.agent_logs.logs import SESSION, gemini
from tests.addon.telemetry.made import NOON

DOCUMENT = gemini()
LINES = [
    {key: value for key, value in DOCUMENT.items() if key != "messages"},
    *DOCUMENT["messages"],
    DOCUMENT["messages"][1],  # saved again
]


@pytest.mark.parametrize("lines", [[DOCUMENT], LINES])
def test_answers_with_tokens(lines):
    (call,) = gemini_cli.calls(lines)
    assert (call.session_id, call.model, call.tool_calls) == (SESSION, "gemini-2.5-pro", 1)
    _, reading = booked(call, now=NOON, capture="f", tags={})
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (900, 500)
    assert (usage.output_tokens, usage.reasoning_tokens) == (100, 60)


def test_no_session_no_calls():
    assert list(gemini_cli.calls(DOCUMENT["messages"])) == []


def test_a_message_without_an_id_and_a_folder():
    message = {**DOCUMENT["messages"][1], "id": None, "toolCalls": None}
    (call,) = gemini_cli.calls([{**DOCUMENT, "messages": [message], "directory": "/w/app/"}])
    assert (call.project, call.tool_calls) == ("app", 0)
