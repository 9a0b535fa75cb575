"""Pure. The output file of a batch, one line per answer: OpenAI, Mistral, Groq, and Gemini. And
the documents that hold such answers: Mistral's jobs with inline requests, xAI's pages of results.

https://platform.openai.com/docs/guides/batch
https://ai.google.dev/gemini-api/docs/batch-api
https://docs.mistral.ai/api/endpoint/batch (`BatchJobOut.outputs`)
https://docs.x.ai/developers/advanced-api-usage/batch-api
"""

from typing import Any

from addon.dialects.counts import lookup, object_at, objects_at
from addon.dialects.facts import Facts
from addon.dialects.fetched import sums


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one line. OpenAI's answer is in `response.body`, Gemini's in `response`."""
    response = object_at(body, "response")
    if response is not None and ("custom_id" in body or "key" in body):
        sums.add(facts, object_at(response, "body") or response)


OUTPUT_FILE = sums.dialect_of_results("openai.batch_output", read, mark=b'"response"')


def read_job(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a job of Mistral; only one with inline requests that is done has outputs."""
    for one in objects_at(body, "outputs"):
        read(facts, event, one)


def read_page(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    """Read one page of xAI's results; each names what was asked for above its answer."""
    for one in objects_at(body, "results"):
        answers = lookup(one, "batch_result.response")
        for answer in answers.values() if isinstance(answers, dict) else ():
            if isinstance(answer, dict):
                sums.add(facts, answer)


MISTRAL_JOB = sums.dialect_of_results("mistral.batch_job", read_job, mark=b'"outputs"')
XAI_RESULTS = sums.dialect_of_results("xai.batch_results", read_page, mark=b'"results"')
