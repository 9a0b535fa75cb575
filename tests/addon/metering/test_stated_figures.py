"""Figures that an answer states and that cannot be right: zeros, no output for text, estimates."""

import json
from collections.abc import Mapping

import pytest

from addon.dialects.facts import Facts
from addon.dialects.routes import DIALECTS
from addon.metering.messages import End
from addon.metering.settlement import NO_OUTPUT, ZEROS, result_of
from ledger.model.exchange import UsageSource
from tests.addon.feeding import JSON, metered
from tests.ledger.written import NOON, opened
from tests.named import for_each

TEXT = "hello there"
ANSWERS: dict[str, dict[str, object]] = {
    "openai.chat": {"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]},
    "openai.completions": {"choices": [{"text": TEXT, "finish_reason": "length"}]},
    "openai.responses": {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}],
    },
    "anthropic.messages": {
        "type": "message",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
    },
}


def read(dialect: str, usage: Mapping[str, object]):
    body = json.dumps({"id": "x1", "model": "m", **ANSWERS[dialect], "usage": usage}).encode()
    meter = metered(DIALECTS[dialect], body, JSON).tap.meter
    row = opened("x1", streamed=False, operation=DIALECTS[dialect].operation)
    return result_of(row, end=End.FINISHED, status=200, meter=meter, now=NOON).reading


@for_each(
    "dialect, usage",
    [
        pytest.param("openai.responses", {"input_tokens": 0, "output_tokens": 0}, id="responses"),
        pytest.param("anthropic.messages", {"input_tokens": 0, "output_tokens": 0}, id="messages"),
    ],
)
def test_zeros_of_a_document_are_no_figures(dialect, usage):
    reading = read(dialect, usage)
    assert reading.usage_source is UsageSource.NONE
    assert ZEROS in reading.usage.remarks


def test_zeros_of_an_answer_that_a_guardrail_made_are_figures():
    body = {
        "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
        "stopReason": "guardrail_intervened",
        "usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0},
    }
    dialect = DIALECTS["bedrock.converse"]
    meter = metered(dialect, json.dumps(body).encode(), JSON).tap.meter
    row = opened("x1", streamed=False, operation=dialect.operation)
    reading = result_of(row, end=End.FINISHED, status=200, meter=meter, now=NOON).reading
    assert reading.usage_source is UsageSource.REPORTED


@for_each(
    "dialect, usage",
    [
        pytest.param("openai.chat", {"prompt_tokens": 12, "completion_tokens": 0}, id="zero"),
        pytest.param("openai.chat", {"prompt_tokens": 12, "completion_tokens": -1}, id="below"),
        pytest.param("openai.chat", {"total_tokens": 17}, id="total-alone"),
        pytest.param("openai.responses", {"input_tokens": 12, "output_tokens": 0}, id="responses"),
        pytest.param("anthropic.messages", {"input_tokens": 12}, id="messages"),
    ],
)
def test_text_without_output_tokens_is_read_in_part(dialect, usage):
    reading = read(dialect, usage)
    assert reading.usage_source is UsageSource.PARTIAL
    assert NO_OUTPUT in reading.usage.remarks


def test_a_prompt_that_is_echoed_has_no_output_tokens():
    usage = {"prompt_tokens": 12, "total_tokens": 12}
    assert read("openai.completions", usage).usage_source is UsageSource.REPORTED
    usage |= {"total_tokens": 17, "completion_tokens": 0}
    assert read("openai.completions", usage).usage_source is UsageSource.PARTIAL


def test_a_bill_explains_text_without_tokens():
    reading = read("openai.chat", {"prompt_tokens": 12, "completion_tokens": 0, "cost": 0.5})
    assert reading.usage_source is UsageSource.REPORTED


@for_each(
    "total, source",
    [
        pytest.param(40, UsageSource.PARTIAL, id="more"),
        pytest.param(14, UsageSource.PARTIAL, id="less"),
        pytest.param(15, UsageSource.REPORTED, id="the-sum"),
    ],
)
def test_a_total_that_nothing_explains_makes_a_reading_partial(total, source):
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": total}
    assert read("openai.completions", usage).usage_source is source
    assert read("openai.chat", {**usage, "cost": 0.5}).usage_source is UsageSource.REPORTED


@for_each(
    "words",
    [
        pytest.param({"estimated": "true"}, id="as-text"),
        pytest.param({"usage_estimated": True}, id="usage"),
        pytest.param({"estimate": True}, id="estimate"),
        pytest.param({"source": "estimated"}, id="source"),
        pytest.param({"approximate": True}, id="approximate"),
    ],
)
def test_figures_that_call_themselves_estimates(words):
    usage = {"prompt_tokens": 12, "completion_tokens": 3, **words}
    assert read("openai.chat", usage).usage_source is UsageSource.ESTIMATED


@for_each(
    "words",
    [
        pytest.param({"estimated": False}, id="not-one"),
        pytest.param({"estimated_cost": 0.1}, id="a-cost"),
        pytest.param({"cached": True, "source": "provider"}, id="other-words"),
    ],
)
def test_figures_that_do_not(words):
    usage = {"prompt_tokens": 12, "completion_tokens": 3, **words}
    assert read("openai.chat", usage).usage_source is UsageSource.REPORTED


def test_zeros_behind_figures_take_nothing_away():
    facts = Facts()
    facts.record_usage({"input_tokens": 9, "details": {"cached": 3}}, final=False)
    facts.record_usage({"input_tokens": 0, "details": {"cached": 0}, "is_byok": True}, final=True)
    assert facts.usage_final
    assert facts.usage == {"input_tokens": 9, "details": {"cached": 3}}
    facts.record_usage({"details": [1]}, final=True)
    assert facts.usage == {"details": [1]}
