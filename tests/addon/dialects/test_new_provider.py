"""Adding a wire format is one file and one row: here is the file, and here is the row.

Lumen is made up. Its streams say `{"say": "text"}` and end with `{"over": {...}}`.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from addon.dialects import routes
from addon.dialects.counts import Counts, object_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.facts import Facts
from addon.dialects.openai import chat as openai_chat
from ledger.model import providers
from ledger.model.providers import PROVIDERS, Provider, ProviderTable
from ledger.model.usage import Usage
from tests.addon.feeding import Answer

# addon/dialects/lumen.py: from here …


def read(facts: Facts, _event: str, body: dict[str, Any]) -> None:
    facts.record_id(body.get("call"))
    if body.get("say"):
        facts.token_seen = True
    over = object_at(body, "over")
    if over is not None:
        facts.record_finish(over.get("because"))
        facts.record_usage(over.get("light"), final=True)
        facts.ended = True


def usage_of(usage: Mapping[str, Any], _facts: Facts) -> Usage:
    counts = Counts(usage)
    return Usage(input_tokens=counts.first("in"), output_tokens=counts.first("out"))


LUMEN = Dialect(
    name="lumen.speak",
    operation="chat",
    read=read,
    usage_of=usage_of,
    known_keys=frozenset({"in", "out"}),
    marks=(Mark(b'"over"'),),
    text_marks=(b'"say"',),
)

# … to here, and its row in `routes.ROWS`:
ROW = routes.RouteRow("/speak", LUMEN)


def test_a_new_wire_format_is_one_file_and_one_row() -> None:
    table = routes.RouteTable([*routes.ROWS, ROW])
    route = table.match("POST", "api.lumen.example", "/any/prefix/speak")
    assert route is not None
    meter = Answer(route.dialect, content_type="text/event-stream")
    for n in range(300):
        meter.feed(
            b"data: " + json.dumps({"call": "c-1", "say": f"word{n % 10} "}).encode() + b"\n\n"
        )
    light = {"in": 3, "out": 300, "glow": 1}
    meter.feed(
        b"data: " + json.dumps({"over": {"because": "done", "light": light}}).encode() + b"\n\n"
    )
    meter.end()
    facts = meter.facts
    assert (facts.response_id, facts.finish_reason, facts.ended) == ("c-1", "done", True)
    assert meter.usage() == Usage(input_tokens=3, output_tokens=300)
    assert meter.estimated_output_tokens() == 450
    assert meter.unknown_keys == {"glow"}
    assert meter.frames == 301


def test_a_new_provider_of_a_known_wire_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Provider(name="lumen", hosts=("lumen.example",))
    table = ProviderTable((*PROVIDERS, row))
    monkeypatch.setattr(providers, "TABLE", table)
    route = routes.match("POST", "api.lumen.example", "/v1/chat/completions")
    assert route is not None
    assert route.dialect is openai_chat.CHAT
    assert route.is_confirmed
    assert providers.provider_of("api.lumen.example", "/v1/chat/completions") == "lumen"
