"""Recordings and the rows that were booked of them, for the commands that hold one to the other."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ledger.model.exchange import Exchange, Outcome, Reading, Source, State, UsageSource
from ledger.model.usage import Usage
from ledger.pricing.charges import charge
from ledger.pricing.prices import PriceBook

NOON = datetime(2026, 11, 2, 12, 0, 0, 123457, tzinfo=UTC)
HOST = "llm.example.com"
USAGE = '{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}'

# What the answer would have been without our question, and what asking added to it.
_OPENING = (
    b'data: {"id":"r-1","model":"m-1","choices":[{"index":0,"delta":{"content":"Hi"}}]%b}\n\n'
)
_FINISH = b'data: {"id":"r-1","model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]%b}\n\n'
_USAGE_EVENT = b'data: {"id":"r-1","model":"m-1","choices":[],"usage":%b}\n\n' % USAGE.encode()
_DONE = b"data: [DONE]\n\n"
_NULL = b',"usage":null'
SENT = _OPENING % _NULL + _FINISH % _NULL + _USAGE_EVENT + _DONE
"""A stream whose usage somebody asked for."""
HANDED = _OPENING % b"" + _FINISH % b"" + _DONE
"""The same as the client has it who did not."""
REMOVED = _NULL + _NULL + _USAGE_EVENT

FACTS = {
    "state": State.SETTLED,
    "outcome": Outcome.COMPLETE,
    "settled_at": NOON + timedelta(seconds=1),
    "response_id": "r-1",
    "response_model": "m-1",
    "http_status": 200,
}
STRIPPED: dict[str, Any] = {
    "usage_injected": True,
    "usage_stripped": True,
    "client_bytes": len(HANDED),
    "removed_bytes": len(REMOVED),
    "client_digest": hashlib.sha256(HANDED).hexdigest(),
    "removed_digest": hashlib.sha256(REMOVED).hexdigest(),
}

PRICES = """
[[price]]
model = "m-1"
from = 2026-01-01
until = 2026-11-03
usd_per_mtok = { uncached_input = 1, output = 10 }

[[price]]
model = "m-1"
from = 2026-11-03
usd_per_mtok = { uncached_input = 1000, output = 1000 }
"""
"""1 000 000 and 10 000 000 pico-USD a token at noon; dearer from the next day on."""


def recording(
    name: str,
    body: bytes = SENT,
    *,
    at: datetime = NOON,
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
    status: int = 200,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """A line of a capture."""
    value = {
        "name": name,
        "id": name,
        "started_at": at.isoformat(),
        "request": {
            "method": "POST",
            "url": f"https://{HOST}{path}",
            "headers": {"content-type": "application/json", "authorization": "<redacted>"},
            "body_b64": _text(b'{"model":"m-1","stream":true,"messages":[]}'),
        },
        "response": {
            "status": status,
            "headers": headers or {"content-type": "text/event-stream"},
            "body_b64": _text(body),
            "encoded": True,
            "chunks": [[len(body), 1000]],
        },
    }
    return json.dumps(value | dict(more or {})).encode() + b"\n"


def captures(folder: Path, *lines: bytes, name: str = "20261102T12.jsonl.gz") -> Path:
    """A folder with a capture file of these."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(map(gzip.compress, lines)))
    return folder


def exchange(name: str, body: bytes = SENT, *, at: datetime = NOON, **more: Any) -> Exchange:
    """The row of such an exchange, as it passed; unedited if nothing else is said."""
    digest = hashlib.sha256(body).hexdigest()
    passed = {
        "response_bytes": len(body),
        "client_bytes": len(body),
        "removed_bytes": 0,
        "upstream_digest": digest,
        "client_digest": digest,
    }
    return Exchange(
        **{
            "id": name,
            "origin": f"https://{HOST}:443",
            "provider": "example",
            "dialect": "openai.chat",
            "operation": "chat",
            "path": "/v1/chat/completions",
            "opened_at": at,
            "request_model": "m-1",
            "streamed": True,
            "source": Source.LIVE,
            **passed,
            **FACTS,
            **more,
        }
    )


def reading(of: Exchange, **more: Any) -> Reading:
    """What is to be read of `SENT`: 12 tokens in and 3 out."""
    return Reading(
        **{
            "exchange_id": of.id,
            "opened_at": of.opened_at,
            "meter_version": "1",
            "usage_source": UsageSource.REPORTED,
            "usage": Usage(input_tokens=12, output_tokens=3),
            "usage_json": USAGE,
            "read_at": of.opened_at,
            **more,
        }
    )


def misread(of: Exchange, **more: Any) -> Reading:
    """What a meter with a bug made of it: 10 tokens in."""
    read = reading(of)
    return replace(read, usage=replace(read.usage, input_tokens=10), **more)


def entry(of: Exchange, read: Reading, prices: Path) -> tuple[Exchange, Reading, Any]:
    """To be written with `tests.ledger.written.put`."""
    return of, read, charge(of, read, PriceBook.load(str(prices)))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
