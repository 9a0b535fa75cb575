"""Adding a wire format is one file and one row: the file that `docs/adding.md` shows.

Lumen is made up. Its streams say `{"say": "text"}` and end with `{"over": {...}}`.
"""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from addon.dialects import routes
from addon.dialects.dialect import Dialect
from addon.dialects.openai import chat as openai_chat
from addon.metering.exchange import MeteredExchange
from addon.metering.messages import Body, End
from ledger.model import provider_table
from ledger.model.exchange import Outcome
from ledger.model.provider_table import ProviderTable
from ledger.model.providers import PROVIDERS, Provider
from tests.addon.feeding import JSON, SSE
from tests.addon.metering.opened import REQUEST, maybe_opened, tapped

NOW = REQUEST.began_at + timedelta(seconds=9)
GUIDE = Path(__file__).parents[3] / "docs" / "adding.md"
LIGHT = {"in": 3, "out": 300, "glow_tokens": 1}
OVER = {"over": {"because": "done", "light": LIGHT}}


def sse(*frames: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


SAYS = [{"call": "c-1", "say": f"word{n % 10} "} for n in range(300)]
FAILS = {"error": {"type": "too_dark", "message": "…"}}


@pytest.fixture
def lumen(monkeypatch: pytest.MonkeyPatch) -> Dialect:
    """The guide's file, row and provider, where a stranger puts them."""
    guide = GUIDE.read_text()
    shown = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    row = re.search(r"`(RouteRow\(.*?\))`", guide)
    provider = re.search(r"`(Provider\(.*?\))`", guide)
    assert shown is not None
    assert row is not None
    assert provider is not None
    module: dict[str, Any] = {}
    exec(shown[1], module)  # it is what the guide shows
    dialect: Dialect = module["LUMEN"]
    added = eval(row[1].replace("lumen.", ""), {"RouteRow": routes.RouteRow, **module})
    table = ProviderTable((*PROVIDERS, eval(provider[1], {"Provider": Provider})))
    monkeypatch.setattr(provider_table, "TABLE", table)
    monkeypatch.setattr(routes, "match", routes.RouteTable([*routes.ROWS, added]).match)
    monkeypatch.setitem(routes.DIALECTS, dialect.name, dialect)
    return dialect


def asked(host: str, body: bytes = b'{"ask":"why?"}') -> MeteredExchange | None:
    return maybe_opened(replace(REQUEST, host=host, path="/any/prefix/speak", body=Body(body)))


@pytest.mark.parametrize(
    ("body", "kind", "frames"),
    [
        pytest.param(sse(*SAYS, OVER), SSE, 301, id="stream"),
        pytest.param(
            json.dumps({"call": "c-1", "say": "all", **OVER}).encode(), JSON, 1, id="json"
        ),
    ],
)
def test_a_new_wire_format_is_one_file_and_one_row(lumen, body: bytes, kind: str, frames: int):
    exchange = asked("api.lumen.example")
    assert exchange is not None
    assert exchange.is_confirmed
    tap = tapped(exchange, body, kind)
    tap.callable(b"")
    row, reading = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert (row.provider, row.dialect, row.outcome) == ("lumen", lumen.name, Outcome.COMPLETE)
    assert (row.response_id, row.finish_reason) == ("c-1", "done")
    assert reading is not None
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 300)
    assert reading.usage.tool_units == {"glow_tokens": 1}
    assert tap.meter.frames == frames


def test_its_errors_are_read_behind_text(lumen):
    exchange = asked("api.lumen.example")
    assert exchange is not None
    tapped(exchange, sse(*SAYS[:100], FAILS), SSE).callable(b"")
    settled, _ = exchange.settle(End.FINISHED, cause=None, now=NOW)
    assert settled.error_type == "too_dark"


def test_its_shapes_confirm_it_at_a_host_that_nobody_named(lumen):
    sure, unsure = asked("x.example"), asked("x.example", b'{"form":1}')
    assert sure is not None
    assert unsure is not None
    assert unsure.is_confirmed is False
    tapped(unsure, sse(OVER), SSE).callable(b"")
    assert unsure.is_confirmed
    assert sure.is_confirmed


def test_a_new_provider_of_a_known_wire_is_a_row(lumen):
    route = routes.match("POST", "api.lumen.example", "/v1/chat/completions")
    assert route is not None
    assert route.dialect is openai_chat.CHAT
    assert route.is_confirmed
    assert provider_table.provider_of("api.lumen.example", "/v1/chat/completions") == "lumen"
