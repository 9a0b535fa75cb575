"""The recorded corpus beside the project, read through the one meter; 1 726 exchanges, all exact.

Every row of `expected.jsonl` is held against what the meter says: id, model, finish reason, all
token columns, the usage object as JSON values, and whether there was an error. Where a row is
`ambiguous`, one of its `alt`ernatives will do for the figures.
"""

import base64
import functools
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import brotli
import pytest
import zstandard

from addon.dialects import routes
from addon.dialects.facts import AnswerContext, token_of
from addon.metering.meter import Meter
from ledger.model import provider_table
from ledger.model.usage import BESIDE, Usage
from tests.addon.feeding import Answer, pieces
from tests.conftest import Say

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
COLUMNS = {
    "input_tokens_total": "input_tokens",
    "input_cached_read": "cache_read_tokens",
    "input_cache_write": "cache_write_tokens",
    "input_cache_write_5m": "cache_write_5m_tokens",
    "input_cache_write_1h": "cache_write_1h_tokens",
    "output_tokens_total": "output_tokens",
    "output_reasoning": "reasoning_tokens",
}
EXCEPTIONS: dict[str, dict[str, Any]] = {
    # The body says `"id":""`, which names no response: "first non-empty id in the stream; NULL
    # if the wire has none". The expectation repeats the empty text.
    "bedrock__bedrock__n__test-imported-model-completion__ef2e57cf": {"response_id": None},
    # The bodies of these models say why they stopped, in lists or beside the text: AI21
    # `completions[0].finishReason.reason`, Claude `stop_reason` beside `completion`, Cohere
    # `generations[0].finish_reason`, Mistral `outputs[0].stop_reason`.
    **{
        name: {"finish": reason}
        for reason, names in {
            "length": (
                "bedrock__bedrock__n__ai21-invoke__0d34cfc9",
                "bedrock__bedrock__n__mock-external-bedrock-server-invoke-model__d604ec7a",
                "bedrock__bedrock__n__test-invoke-model-with-content-mistral-mistral__83248f30",
                "bedrock__bedrock__s__thstreams-adds-mistral-ai-model-attributes-to-span__8c5b3156",
            ),
            "stop_sequence": (
                "bedrock__bedrock__n__anthropic-invoke__ee8a2d22",
                "bedrock__bedrock__n__recording__721a7050",
            ),
            "MAX_TOKENS": (
                "bedrock__bedrock__n__cohere-invoke-single-output__1ec27093",
                "bedrock__bedrock__s__reams-adds-cohere-command-model-attributes-to-span__46b3a608",
            ),
            "endoftext": (
                "bedrock__bedrock__n__mock-external-bedrock-server-invoke-model__39bbb6fe",
                "bedrock__bedrock__n__recording__5a7424ea",
            ),
            "max_tokens": (
                "bedrock__bedrock__n__mock-external-bedrock-server-invoke-model__bfe5c2c3",
            ),
            "COMPLETE": (
                "bedrock__bedrock__n__recording__3f729f6f",
                "cohere__cohere__n__recording__c29f4506",
                "cohere__cohere__n__test-cohere-completion-legacy__009ef21b",
            ),
        }.items()
        for name in names
    },
    # The stream counts 8 tokens of input on its first event, and at its `eos_token` 11 of output.
    "other__watsonx__s__test-generate-stream-metrics__45bd9700": {
        "model": "google/flan-ul2",
        "finish": "eos_token",
        "usage": {"generated_token_count": 11, "input_token_count": 8},
        "input_tokens_total": 8,
        "output_tokens_total": 11,
    },
    # Titan counts its input on the first chunk, and this stream ends before its metrics.
    "bedrock__bedrock__s__test-guardrail-invoke-stream__ac9d3c56": {
        "usage": {"inputTextTokenCount": 6.0},
        "input_tokens_total": 6,
    },
    # The body has counts and a finish reason, in Aleph Alpha's own words.
    "other__aleph-alpha__n__test-alephalpha-completion__d6fee384": {
        "finish": "maximum_tokens",
        "usage": {"num_tokens_prompt_total": 9, "num_tokens_generated": 1000},
        "input_tokens_total": 9,
        "output_tokens_total": 1000,
    },
    # Two choices of one prompt, each with a usage chunk of its own: what both generated is billed.
    "compatible__llama-cpp__s__two-candidates-streaming__a1a57933": {
        "usage": {
            "completion_tokens": 16,
            "prompt_tokens": 28,
            "prompt_tokens_details": {"cached_tokens": 27},
            "total_tokens": 44,
        },
        "output_tokens_total": 16,
    },
    # `verbose_json` of Whisper has no usage object; what is billed is its duration.
    "compatible__venice__n__transcription-smoke__478e27bc": {
        "usage": {"seconds": 5.495999813079834}
    },
}
"""What we hold to be wrong in an expectation, with the proof; what is right instead."""
FREE_TEXTS = {
    "anthropic__anthropic__n__long-conversation-and-bills-the-summarization-pass__3b1a40f9",
    "anthropic__anthropic__n__returns-readable-thinking-with-display-summarized__71ebbb32",
    "cohere__cohere__n__test-cohere-chat-legacy-async__21a457ca",
}
"""Their usage objects have a text that is no token, which becomes null."""

pytestmark = [
    pytest.mark.large,
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason=f"the recorded corpus is not beside the project ({CORPUS})"
    ),
]


@functools.cache
def exchanges() -> list[dict[str, Any]]:
    rows = []
    for family in sorted(CORPUS.glob("*.jsonl.gz")):
        with gzip.open(family) as lines:
            for line in lines:
                row = json.loads(line)
                row["body"] = base64.b64decode(row["response"]["body_b64"])
                rows.append(row)
    return rows


@functools.cache
def expectations() -> dict[str, dict[str, Any]]:
    with (CORPUS / "expected.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    return {row["name"]: row | EXCEPTIONS.get(row["name"], {}) for row in rows}


def metered(
    row: dict[str, Any], chunks: list[bytes] | None = None, encoding: str = ""
) -> tuple[routes.Route, Answer]:
    request, response = row["request"], row["response"]
    url = urlsplit(request["url"])
    route = routes.match(request["method"], url.netloc, url.path) or routes.UNKNOWN
    headers = {name.lower(): value for name, value in response["headers"].items()}
    meter = Answer(
        route.dialect,
        content_type=headers.get("content-type") or "",
        content_encoding=encoding,
        context=AnswerContext(
            headers=headers,
            provider=provider_table.provider_of(url.hostname or "", url.path),
            path_model=route.path_model,
        ),
        status=response["status"],
    )
    for chunk in [row["body"]] if chunks is None else chunks:
        meter.feed(chunk)
    meter.end()
    return route, meter


def picture(meter: Answer) -> tuple[Any, ...]:
    usage = meter.usage()
    return (meter.facts, usage, meter.usage_json, meter.frames, meter.estimated_output_tokens())


def mismatches(row: dict[str, Any], meter: Answer) -> list[str]:
    expected = expectations()[row["name"]]
    if row["name"] in FREE_TEXTS:
        expected = {**expected, "usage": without_texts(expected["usage"])}
    facts = meter.facts
    finish = expected["finish"]
    usage = meter.usage()
    pairs = {
        "response_id": (facts.response_id, expected["response_id"]),
        "model": (facts.response_model, expected["model"]),
        # A finish reason is text in the ledger; Gemini's enums may come as numbers.
        "finish": (facts.finish_reason, None if finish is None else str(finish)),
        "usage": (usage_object(meter), expected["usage"]),
        "error": (facts.error is not None or row["response"]["status"] >= 400, expected["error"]),
    }
    wrong = [f"{name}: {got!r}, not {want!r}" for name, (got, want) in pairs.items() if got != want]
    if not any(figures_agree(usage, expected | alt) for alt in [{}, *expected["alt"]]):
        wrong.append(f"figures: {usage}")
    return wrong


def usage_object(meter: Answer) -> dict[str, Any] | None:
    """The provider's own usage object."""
    if meter.usage_json is None:
        return None
    members = json.loads(meter.usage_json).items()
    return {key: value for key, value in members if not key.startswith(BESIDE)}


def without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_texts(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_texts(inner) for inner in value]
    return token_of(value) if isinstance(value, str) else value


def figures_agree(usage: Usage, expected: dict[str, Any]) -> bool:
    return all(getattr(usage, ours) == expected[theirs] for theirs, ours in COLUMNS.items())


def test_every_exchange_is_read_exactly(say_at_end: Say) -> None:
    count: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for row in exchanges():
        route, meter = metered(row)
        count[route.dialect.name] += 1
        if reasons := mismatches(row, meter):
            wrong[row["name"]] = reasons
        else:
            exact[route.dialect.name] += 1
    section = "recorded exchanges: read exactly"
    say_at_end(section, f"{'dialect':26}{'exchanges':>10}{'exact':>8}")
    for name in sorted(count):
        say_at_end(section, f"{name:26}{count[name]:>10}{exact[name]:>8}")
    say_at_end(section, f"{'all':26}{count.total():>10}{exact.total():>8}")
    assert wrong == {}
    assert count.total() == len(expectations())


def test_exceptions_are_still_needed() -> None:
    names = {row["name"] for row in exchanges()}
    assert set(EXCEPTIONS) <= names


NO_FIGURES = {
    *("type", "status", "version", "currency", "modality", "engine_tbt_ms", "cost_estimate"),
    *("input_tokens_cost", "upstream_inference_cost", "upstream_inference_completions_cost"),
}
"""First keys of objects beside the counts: a kind, an API's version, times, what a gateway makes of
it. An answer of OpenRouter has its bill in `cost`; a new modality has its own test."""


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if inner and isinstance(inner, dict | list):
            yield from objects_in(inner)


def test_a_count_that_nobody_knows_is_a_unit_of_its_own() -> None:
    """In every object of every usage, streamed or not: a new count may be billed, so nothing that
    carries one counts as priced."""
    unseen: list[tuple[str, str]] = []
    tried = 0
    for row in exchanges():
        usage = expectations()[row["name"]]["usage"]
        if not usage or row["body"][:1] == b"\0":  # binary event streams have checksums
            continue
        for key in {next(iter(found)) for found in objects_in(usage) if found}:
            name = re.escape(json.dumps(key).encode())
            put = rb'"hologram_tokens":7,\g<0>'
            body = re.sub(rb"(?<!\\)" + name + rb"\s*:", put, row["body"])
            if body == row["body"]:
                continue
            tried += 1
            units = metered(row | {"body": body})[1].usage().tool_units
            is_bill = row["provider"] == "openrouter" or key in NO_FIGURES
            if not is_bill and not any(unit.endswith("hologram_tokens") for unit in units):
                unseen.append((row["name"], key))
    assert tried > 2_000
    assert not unseen


@pytest.mark.large
def test_cuts_mean_nothing() -> None:
    """Every exchange at random cuts and in the tap's batches; each tenth byte by byte."""
    rng = random.Random(20_261_120)
    for index, row in enumerate(exchanges()):
        body = row["body"]
        whole = picture(metered(row)[1])
        at_random = [rng.randrange(1, len(body)) for _ in range(8)] if len(body) > 1 else []
        ways = [pieces(body, at_random), pieces(body, range(0, len(body), 1_900))]
        if index % 10 == 0 and len(body) < 20_000:
            ways.append(pieces(body, range(len(body))))
        for chunks in ways:
            assert picture(metered(row, chunks)[1]) == whole, row["name"]


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        pytest.param("gzip", functools.partial(gzip.compress, compresslevel=1), id="gzip"),
        pytest.param("br", functools.partial(brotli.compress, quality=1), id="br"),
        pytest.param("zstd", zstandard.compress, id="zstd"),
    ],
)
def test_compressed_again_it_reads_the_same(
    encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    for row in exchanges()[::7]:
        encoded = compress(row["body"])
        chunks = pieces(encoded, range(0, len(encoded), 700))
        assert picture(metered(row, chunks, encoding)[1]) == picture(metered(row)[1]), row["name"]


def test_what_is_looked_through_reads_as_if_it_were_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Marks and ordinary frames are a way to be quick, never another reading."""
    rows = [row for row in exchanges() if len(row["body"]) > 2_000]
    looked = [
        picture(metered(row, pieces(row["body"], range(0, len(row["body"]), 1_900)))[1])
        for row in rows
    ]
    monkeypatch.setattr(Meter, "skips", lambda _meter, _run: False)
    monkeypatch.setattr(Meter, "_read_marked", _parse_all)
    for row, seen in zip(rows, looked, strict=True):
        assert picture(metered(row)[1]) == seen, row["name"]


def _parse_all(meter: Meter, run: bytes, _frames: int, _blocks: list[bytes] | None) -> None:
    assert meter.framing is not None
    for block in meter.framing.split(run):
        meter._read_block(block)


def test_no_usage_key_is_unknown() -> None:
    unknown: set[str] = set()
    for row in exchanges():
        _, meter = metered(row)
        meter.usage()
        unknown |= meter.unknown_keys
    assert unknown == set()
