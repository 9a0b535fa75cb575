"""Wire behaviour as data: every `tests/data/<dialect>/<case>/` is read by the one meter.

    request.json    method, host, path, body, as a client sent it
    response.*      the answer's bytes; the suffix says what content type it came under
    expected.json   worked out by hand from the response: what is not listed must be None

A case is a folder; adding one adds no code. `expected.json` may say `status`, `headers` and
`content_type` of the answer, and then: `provider`, `request` (some fields of what the request
says), `facts` (some), `usage` (all columns that are not None; null for none at all),
`tool_units`, `further`, `remarks`, `usage_json`, `frames`.

What no rule knows is never lost: a new unit, tier or region mode of an answer reaches the ledger.
Every case is altered where its figures stand. The ledger makes a request `partial` for what is
asserted here (`tests/ledger/pricing/test_rules.py`).
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addon.dialects import routes
from addon.dialects.facts import AnswerContext
from addon.dialects.fetched import BATCH
from addon.dialects.request import read_request
from addon.framing import document, long_json
from ledger.model import provider_table
from ledger.model.usage import NO_USAGE, Usage
from ledger.pricing.rules import published
from tests.addon.feeding import Answer, cuts_of, pieces
from tests.addon.framing.test_eventstream import header, message
from tests.named import for_each

DATA = Path(__file__).parents[2] / "data"
CASES = sorted(folder for folder in DATA.glob("*/*") if folder.is_dir())
CONTENT_TYPES = {
    ".sse": "text/event-stream",
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".messages": "application/vnd.amazon.eventstream",
}
COLUMNS = [
    name for name in Usage.__struct_fields__ if name not in ("tool_units", "further", "remarks")
]


def named(cases: list[Path]) -> list[Any]:
    return [pytest.param(case, id=f"{case.parent.name}/{case.name}") for case in cases]


@cache
def load(case: Path) -> tuple[routes.Route, dict[str, Any], dict[str, Any], str, bytes]:
    request = json.loads((case / "request.json").read_bytes())
    expected = json.loads((case / "expected.json").read_bytes())
    (response,) = case.glob("response.*")
    route = routes.match(request["method"], request["host"], request["path"])
    assert route is not None, request["path"]
    body = response.read_bytes()
    if response.suffix == ".messages":
        body = encoded(body)
    return route, request, expected, CONTENT_TYPES[response.suffix], body


def encoded(lines: bytes) -> bytes:
    """Event-stream messages, written in the case as lines of `{"headers", "payload"}`."""
    body = b""
    for line in lines.splitlines():
        one = json.loads(line)
        headers = b"".join(header(name, value) for name, value in one["headers"].items())
        body += message(headers, json.dumps(one["payload"]).encode() if one["payload"] else b"")
    return body


def metered(case: Path, chunks: list[bytes]) -> Answer:
    route, request, expected, content_type, _ = load(case)
    said = read_request(route, json.dumps(request["body"]).encode())
    meter = Answer(
        route.dialect,
        content_type=expected.get("content_type", content_type),
        context=AnswerContext(
            headers={name.lower(): value for name, value in expected.get("headers", {}).items()},
            provider=provider_table.provider_of(request["host"], request["path"]),
            path_model=route.path_model,
            prompts=said.prompts,
            choices=said.choices,
            keeps_error_text=True,
        ),
        status=expected.get("status", 200),
    )
    for chunk in chunks:
        meter.feed(chunk)
    meter.end()
    return meter


def picture(meter: Answer) -> tuple[Any, ...]:
    """All that a meter says."""
    usage = meter.usage()
    said = (meter.facts, usage, meter.usage_json, meter.frames, meter.trouble)
    return (*said, meter.estimated_output_tokens())


@for_each("case", named(CASES))
def test_the_case_reads_as_worked_out_by_hand(case: Path) -> None:
    route, request, expected, _, body = load(case)
    assert route.dialect.name == case.parent.name
    said = read_request(route, json.dumps(request["body"]).encode())
    for name, value in expected.get("request", {}).items():
        assert getattr(said, name) == value, name
    if "provider" in expected:
        assert provider_table.provider_of(request["host"], request["path"]) == expected["provider"]

    meter = metered(case, [body])
    usage = meter.usage()
    assert meter.trouble is None
    for name, value in expected.get("facts", {}).items():
        assert fact_of(meter, name) == value, name
    assert (json.loads(meter.usage_json) if meter.usage_json else None) == expected["usage_json"]
    assert_usage(usage, expected)
    if "frames" in expected:
        assert meter.frames == expected["frames"]


def fact_of(meter: Answer, name: str) -> Any:
    """One fact. `failed` and `error_…` are of its error."""
    facts = meter.facts
    if name == "unknown_keys":
        return sorted(meter.unknown_keys)
    if name == "failed":
        return facts.error is not None
    if name.startswith("error_"):
        return getattr(facts.error, name.removeprefix("error_")) if facts.error else None
    return getattr(facts if hasattr(facts, name) else facts.rare, name)


def assert_usage(usage: Usage, expected: dict[str, Any]) -> None:
    if expected["usage"] is None:
        assert usage is NO_USAGE
        return
    figures = {name: getattr(usage, name) for name in COLUMNS}
    assert {name: value for name, value in figures.items() if value is not None} == expected[
        "usage"
    ]
    assert dict(usage.tool_units) == expected.get("tool_units", {})
    assert list(usage.remarks) == expected.get("remarks", [])
    further = expected.get("further", [])
    assert [(one.kind, one.model) for one in usage.further] == [
        (one["kind"], one["model"]) for one in further
    ]
    for one, wanted in zip(usage.further, further, strict=True):
        assert_usage(one.usage, wanted)


@for_each("case", named(CASES))
def test_cuts_mean_nothing(case: Path) -> None:
    body = load(case)[-1]
    whole = picture(metered(case, [body]))
    for size in (1, 2, 3, 64, 1_900):
        assert picture(metered(case, pieces(body, range(0, len(body), size)))) == whole, size


@given(st.sampled_from(CASES), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_random_cuts_mean_nothing(case: Path, data: st.DataObject) -> None:
    body = load(case)[-1]
    cut = pieces(body, data.draw(cuts_of(body)))
    assert picture(metered(case, cut)) == picture(metered(case, [body]))


def padded(value: Any, count: int) -> Any:
    """The same with this many other keys before and behind the members of each object that has a
    number. A key that a dialect reads of it is in `known_keys`, or in `routes._ANSWER_KEYS`."""
    if isinstance(value, list):
        return [padded(inner, count) for inner in value]
    if not isinstance(value, dict):
        return value
    inside = {key: padded(inner, count) for key, inner in value.items()}
    if not any(type(inner) is int for inner in value.values()):
        return inside
    before = {f"before_{n}_{'x' * 20}": 0 for n in range(count)}
    return before | inside | {f"behind_{n}_{'x' * 20}": [0] for n in range(count)}


def padded_body(body: bytes, suffix: str, count: int) -> bytes:
    if suffix == ".json":
        return json.dumps(padded(json.loads(body), count)).encode()
    lines = []
    for line in body.splitlines(keepends=True):
        at = line.find(b"{")
        try:
            value = json.loads(line[at:]) if at >= 0 else None
        except ValueError:
            value = None
        ending = line[len(line.rstrip()) :]
        lines.append(
            line
            if value is None
            else line[:at] + json.dumps(padded(value, count)).encode() + ending
        )
    return b"".join(lines)


TEXT_CASES = [
    case
    for case in CASES
    if not any(case.glob("response.messages")) and b"NaN" not in load(case)[-1]
]
"""A message of an event stream is parsed whole; of long JSON with NaN only the ends are read."""
KEYS_OF_FACTS = ("response_id", "response_model", "finish_reason", "error_type", "ended", "usage")


@for_each("case", named(TEXT_CASES))
def test_figures_are_read_among_any_number_of_other_keys(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (response,) = case.glob("response.*")
    body, expected = load(case)[-1], load(case)[2]
    for module in (long_json, document):
        monkeypatch.setattr(module, "LONG_BYTES", 500)
    for unit in expected.get("unknown_units", ()):
        del expected["tool_units"][unit]  # of so many keys, only the known ones are read
    long = padded_body(body, response.suffix, 100)
    meter = metered(case, pieces(long, range(0, len(long), 300)))
    assert_usage(meter.usage(), expected)
    for name, value in expected.get("facts", {}).items():
        if name in KEYS_OF_FACTS:
            assert fact_of(meter, name) == value, name
    assert "behind_99" not in (meter.usage_json or "")


def test_every_dialect_has_a_case() -> None:
    # Realtime is read message by message (tests/addon/test_session.py); what is unknown has no
    # path of its own (tests/addon/test_meter.py); sessions of hosted agents have several rows
    # (tests/addon/metering/test_hosted.py).
    without = {"openai.realtime", "gemini.live", "unknown"}
    without |= {"anthropic.sessions", "openai.agent_sessions"}
    assert {case.parent.name for case in CASES} == set(routes.DIALECTS) - without


COUNT = re.compile("([tT]okens|_units|[cC]ount)$")
TIERS_KEYS = ("service_tier", "serviceTier", "trafficType", "speed")
TIER, GEO = "hyper", "moon"
UNITS: dict[str, Any] = {
    "plain": {"hologram_tokens": 7},
    "nested": {"a_details": {"hologram_tokens": 7}},
    "deep": {"a_details": {"b_details": {"hologram_tokens": [{"hologram_tokens": 7}]}}},
    "list": {"portals": [{"kind": "red", "hologram_calls": 7}]},
    "text": {"hologram_tokens": "7"},
    "fraction": {"hologram_units": 6.5},
    "capitals": {"hologramTokens": 7},
    "uses": {"hologram": {"invocation": 7}},
    "sound": {"hologram_audio_seconds": 7},
}
FIELDS: dict[str, Any] = {
    "geo": {"inference_geo": GEO},
    "camel": {"inferenceGeo": GEO},
    "list": {"inference_geo": [GEO]},
    "nested": {"where": {"region": GEO}},
    "unheard-of": {"gravity_mode": GEO},
}
TIERS: dict[str, Any] = {
    "snake": {"service_tier": TIER},
    "camel": {"serviceTier": TIER},
    "object": {"service_tier": {"type": TIER}},
    "traffic": {"trafficType": TIER},
}
ASSEMBLED = ("dify.workflow", "watsonx.generation")
"""Their figures stand among other members, of which the meter collects what may be a count."""


def parsed(case: Any) -> list[tuple[str, Any]]:
    """What stands before the JSON of each line of an answer, and its value; a document is one."""
    (response,) = case.glob("response.*")
    text = response.read_text(encoding="utf-8")
    if response.suffix == ".json":
        return [("", json.loads(text))]
    found = []
    for line in text.splitlines():
        at = line.find("{")
        try:
            found.append((line[:at], json.loads(line[at:])) if at >= 0 else (line, ""))
        except ValueError:
            found.append((line, ""))
    return found


def objects(value: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a value, each with its key."""
    if isinstance(value, dict):
        yield key, value
        for name, inner in value.items():
            yield from objects(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner, key)


@cache
def usages_of(case: Any) -> frozenset[str]:
    """The keys of the usage objects of an answer; none where its figures have no object."""
    if load(case)[2]["usage"] is None or case.parent.name in ASSEMBLED:
        return frozenset()
    if load(case)[0].dialect.operation == "batch":
        return frozenset({"usage", "usageMetadata"})
    read = load(case)[2]["usage_json"]
    return frozenset(
        key
        for _, value in parsed(case)
        for key, one in objects(value)
        if key and any(COUNT.search(name) and read.get(name) == each for name, each in one.items())
    )


WITH_USAGE = [case for case in CASES if usages_of(case)]


def with_more(case: Any, more: dict[str, Any]) -> Answer:
    """The case with more members in its usage objects, read by the meter."""
    frames = parsed(case)
    for _, value in frames:
        for key, one in objects(value):
            if key in usages_of(case):
                for name in TIERS_KEYS:
                    one.pop(name, None)
                one.update(more)
    return metered(case, [body_of(case, frames)])


def body_of(case: Any, frames: list[tuple[str, Any]]) -> bytes:
    lines = [
        before + (value if isinstance(value, str) else json.dumps(value))
        for before, value in frames
    ]
    body = "\n".join([*lines, ""]).encode()
    return encoded(body) if load(case)[3].endswith("eventstream") else body


def units_of(meter: Answer) -> str:
    usage = meter.usage()
    every = [usage, *(one.usage for one in usage.further)]
    return " ".join(name for each in every for name in each.tool_units)


@for_each("case", named(WITH_USAGE))
def test_what_no_rule_knows_reaches_the_ledger(case: Any) -> None:
    """A new unit is a unit of the reading, a new region mode a billing field, a new tier the tier."""
    for form, more in UNITS.items():
        assert "hologram" in units_of(with_more(case, more)), form
    for form, more in FIELDS.items():
        fields = published().fields_of(with_more(case, more).usage_json)
        assert GEO in " ".join(fields.values()), form
    for form, more in TIERS.items():
        assert with_more(case, more).facts.service_tier in (TIER, BATCH), form


@for_each("case", named(CASES))
def test_no_text_or_number_is_trusted_to_be_one(case: Any) -> None:
    """What is looked up in a table of ours may be a list on the wire."""
    frames = parsed(case)
    for _, value in frames:
        for name, one in objects(value):
            for key, plain in one.items():
                if isinstance(plain, str | int) and name != "headers":  # of a message of AWS
                    one[key] = [plain]
                    body = body_of(case, frames)
                    picture(metered(case, [body]))
                    one[key] = plain
