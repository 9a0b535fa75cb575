"""Pure. Answers that are fetched later: one at a time, and the files and documents of batches.

https://docs.x.ai/docs/guides/deferred-chat-completions
https://docs.perplexity.ai/api-reference/async-chat-completions-api-request-get
https://platform.openai.com/docs/guides/batch (Mistral's, Groq's and Gemini's files have its lines)
https://docs.claude.com/en/docs/build-with-claude/batch-processing
https://ai.google.dev/gemini-api/docs/batch-api
https://docs.mistral.ai/api/endpoint/batch (`BatchJobOut.outputs`)
https://docs.x.ai/developers/advanced-api-usage/batch-api
"""

from dataclasses import replace
from typing import Any

from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.errors import record_error
from addon.dialects.facts import Facts
from addon.dialects.fetched.batch_sums import add, dialect_of_results
from addon.dialects.openai import chat


def read_perplexity(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read one answer of Perplexity in `response`, beside the state of the order."""
    answer = object_at(body, "response")
    if answer is not None:
        chat.read(facts, event, answer)
    if body.get("error_message"):
        record_error(facts, str(body["error_message"]))


def read_line(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one line of a file. OpenAI's answer is in `response.body`, Gemini's in `response`."""
    response = object_at(body, "response")
    if response is not None and ("custom_id" in body or "key" in body):
        add(facts, object_at(response, "body") or response)


def read_anthropic(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one line of the results of an Anthropic message batch."""
    message = lookup(body, "result.message")
    if isinstance(message, dict) and "custom_id" in body:
        add(facts, message)


def read_gemini(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read a Gemini batch as an operation; one that is not done has no answers."""
    for one in objects_at(lookup(body, "response.inlinedResponses"), "inlinedResponses"):
        answer = object_at(one, "response")
        if answer is not None:
            add(facts, answer)


def read_mistral(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a job of Mistral; only one with inline requests that is done has outputs."""
    for one in objects_at(body, "outputs"):
        read_line(facts, event, one)


def read_xai(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one page of xAI's results; each names what was asked for above its answer."""
    for one in objects_at(body, "results"):
        answers = lookup(one, "batch_result.response")
        for answer in answers.values() if isinstance(answers, dict) else ():
            if isinstance(answer, dict):
                add(facts, answer)


XAI_DEFERRED = replace(chat.CHAT, name="xai.deferred")
PERPLEXITY_ASYNC = replace(chat.CHAT, name="perplexity.async", read=read_perplexity)
OPENAI_FILE = dialect_of_results("openai.batch_output", read_line, mark=b'"response"')
ANTHROPIC_FILE = dialect_of_results("anthropic.batch_results", read_anthropic, mark=b'"result"')
GEMINI_OPERATION = dialect_of_results("gemini.batch", read_gemini, mark=b'"response"')
MISTRAL_JOB = dialect_of_results("mistral.batch_job", read_mistral, mark=b'"outputs"')
XAI_PAGE = dialect_of_results("xai.batch_results", read_xai, mark=b'"results"')
