"""What no rule knows is never lost: a new unit, tier or region mode of an answer reaches the ledger.

Every case of `tests/data` is altered where its figures stand. The ledger makes a request `partial`
for what is asserted here (`tests/ledger/pricing/test_rules.py`).
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from addon.dialects.fetched import BATCH
from addon.metering.answers.meter import Meter
from addon.metering.answers.transcript import transcript_of
from ledger.pricing.rules import published
from tests.addon.dialects.test_cases import CASES, encoded, load, metered, named, picture

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


def with_more(case: Any, more: dict[str, Any]) -> Meter:
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


def units_of(meter: Meter) -> str:
    usage = meter.usage()
    every = [usage, *(one.usage for one in usage.further)]
    return " ".join(name for each in every for name in each.tool_units)


@pytest.mark.parametrize("more", UNITS.values(), ids=list(UNITS))
@pytest.mark.parametrize("case", named(WITH_USAGE))
def test_a_new_unit_is_a_unit_of_the_reading(case: Any, more: dict[str, Any]) -> None:
    assert "hologram" in units_of(with_more(case, more))


@pytest.mark.parametrize("more", FIELDS.values(), ids=list(FIELDS))
@pytest.mark.parametrize("case", named(WITH_USAGE))
def test_a_new_way_to_be_served_is_a_billing_field(case: Any, more: dict[str, Any]) -> None:
    fields = published().fields_of(with_more(case, more).usage_json)
    assert GEO in " ".join(fields.values())


@pytest.mark.parametrize("more", TIERS.values(), ids=list(TIERS))
@pytest.mark.parametrize("case", named(WITH_USAGE))
def test_a_new_tier_is_the_tier(case: Any, more: dict[str, Any]) -> None:
    assert with_more(case, more).facts.service_tier in (TIER, BATCH)


@pytest.mark.parametrize("case", named(CASES))
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
                    transcript_of(body, load(case)[3])
                    one[key] = plain
