"""The same exchange as every kind of file that can hold it, for tests of all kinds."""

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mitmproxy import http, websocket
from mitmproxy.addons.savehar import SaveHar
from mitmproxy.connection import Client, Server
from mitmproxy.flow import Error
from mitmproxy.io import FlowWriter
from wsproto.frame_protocol import Opcode

from addon.metering.memory_budget import MemoryBudget
from addon.metering.messages import End
from addon.recordings.capture import Capture, CapturedExchange, line_of

AT = datetime(2026, 11, 2, 12, 0, 0, 123456, tzinfo=UTC)
HOST = "api.openai.com"
URL = f"https://{HOST}/v1/chat/completions"
CREATED = b'"object":"chat.completion.chunk","created":1762084800,"model":"gpt-4o-mini-2024-07-18"'
STREAM = (
    b'data: {"id":"chatcmpl-7",%b,"choices":[{"index":0,"delta":{"content":"H\xc3\xa9 \xf0\x9f\x98\x80"}}]}\n\n'
    b'data: {"id":"chatcmpl-7",%b,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"chatcmpl-7",%b,"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}}\n\n'
    b"data: [DONE]\n\n"
) % (CREATED, CREATED, CREATED)
PLAIN = (
    b'{"id":"chatcmpl-8","object":"chat.completion","created":1762084800,"model":"gpt-4o-mini",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"H\xc3\xa9"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}'
)
REFUSED = b'{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limited"}}'
ASKED = b'{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"H\xc3\xa9"}]}'


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One exchange, as it passed."""

    name: str
    url: str = URL
    request: bytes = ASKED
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    body: bytes = STREAM
    messages: tuple[tuple[bool, bytes], ...] | None = None
    error: str | None = None
    request_headers: dict[str, str] = field(
        default_factory=lambda: {
            "content-type": "application/json",
            "authorization": "Bearer sk-test-0123456789abcdef",
            "user-agent": "client/1",
        }
    )

    @property
    def is_session(self) -> bool:
        return self.messages is not None


def _message(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


SESSION = Exchange(
    name="session",
    url=f"https://{HOST}/v1/responses",
    request=b"",
    status=101,
    content_type="",
    body=b"",
    messages=tuple(
        part
        for number in (1, 2)
        for part in (
            (True, _message({"type": "response.create", "model": "gpt-5", "input": "hi"})),
            (False, _message({"type": "response.created", "response": {"id": f"resp_{number}", "model": "gpt-5"}})),
            (False, _message({"type": "response.output_text.delta", "delta": "Hi"})),
            (False, _message({"type": "response.completed", "response": {
                "id": f"resp_{number}", "model": "gpt-5", "status": "completed",
                "usage": {"input_tokens": 10 + number, "output_tokens": number, "total_tokens": 10 + 2 * number},
            }})),
        )
    ),
    request_headers={
        "connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
        "sec-websocket-key": "MTIzNDU2Nzg5MDEyMzQ1Ng==", "user-agent": "client/1",
    },
)  # fmt: skip
EXCHANGES = (
    Exchange(name="stream"),
    Exchange(
        name="latin",
        content_type="text/event-stream",
        request=ASKED.replace(b'"role":"user"', b'"role":"system"'),
        body=STREAM.replace(b"chatcmpl-7", b"chatcmpl-9"),
    ),
    Exchange(name="plain", body=PLAIN, content_type="application/json"),
    Exchange(name="refused", body=REFUSED, content_type="application/json", status=429),
    Exchange(
        name="cut", body=STREAM[: STREAM.index(b"data: {", 10)], error="peer closed connection"
    ),
    SESSION,
)


def flow(exchange: Exchange) -> http.HTTPFlow:
    """The exchange as mitmproxy has it when it is over."""
    start = AT.timestamp()
    client = Client(
        peername=("127.0.0.1", 40_000), sockname=("127.0.0.1", 8080), timestamp_start=start
    )
    made = http.HTTPFlow(client, Server(address=(HOST, 443)))
    made.id = f"flow-{exchange.name}"
    made.request = http.Request.make(
        "GET" if exchange.is_session else "POST", exchange.url, exchange.request,
        dict[str | bytes, str | bytes](exchange.request_headers.items()),
    )  # fmt: skip
    made.request.timestamp_start = start
    made.request.timestamp_end = start + 0.001
    headers = {"content-type": exchange.content_type} if exchange.content_type else {}
    made.response = http.Response(
        b"HTTP/1.1", exchange.status, b"", http.Headers([(k.encode(), v.encode()) for k, v in headers.items()]),
        exchange.body, None, start + 0.5, start + 1,
    )  # fmt: skip
    if exchange.error:
        made.error = Error(exchange.error, start + 1)
    if exchange.messages is not None:
        made.websocket = websocket.WebSocketData(
            messages=[
                websocket.WebSocketMessage(Opcode.TEXT, from_client, content, start + 2 + number)
                for number, (from_client, content) in enumerate(exchange.messages)
            ],
            closed_by_client=True, close_code=1000, close_reason="", timestamp_end=start + 20,
        )  # fmt: skip
    return made


def as_flows(folder: Path, exchanges: tuple[Exchange, ...] = EXCHANGES) -> Path:
    """What `mitmdump -w` saves, with bodies."""
    path = folder / "saved.mitm"
    with path.open("wb") as file:
        writer = FlowWriter(file)
        for exchange in exchanges:
            writer.add(flow(exchange))
    return path


def as_bodiless_flows(folder: Path) -> Path:
    """What `mitmdump -w` saves of answers that were streamed."""
    path = folder / "bodiless.mitm"
    with path.open("wb") as file:
        writer = FlowWriter(file)
        for exchange in EXCHANGES:
            if not exchange.is_session:
                made = flow(exchange)
                assert made.response is not None
                made.response.data.content = None
                writer.add(made)
    return path


def as_mitmproxy_har(folder: Path) -> Path:
    """What mitmproxy exports."""
    path = folder / "mitmproxy.har"
    path.write_text(json.dumps(SaveHar().make_har([flow(one) for one in EXCHANGES])))
    return path


def as_browser_har(folder: Path, *, is_base64: bool) -> Path:
    """What Chrome (base64 for what it takes for binary) and Firefox (text) export."""
    path = folder / f"browser-{is_base64}.har"
    log = {
        "version": "1.2",
        "creator": {"name": "WebInspector"},
        "entries": [_entry(one, is_base64=is_base64) for one in EXCHANGES],
    }
    path.write_text(json.dumps({"log": log}, ensure_ascii=False))
    return path


def _entry(exchange: Exchange, *, is_base64: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"size": len(exchange.body), "mimeType": exchange.content_type}
    if is_base64:
        content |= {"text": base64.b64encode(exchange.body).decode(), "encoding": "base64"}
    else:
        content |= {"text": exchange.body.decode()}
    entry: dict[str, Any] = {
        "startedDateTime": AT.isoformat().replace("+00:00", "Z"),
        "time": 1000.0,
        "request": {
            "method": "GET" if exchange.is_session else "POST",
            "url": exchange.url, "httpVersion": "http/2.0", "cookies": [], "queryString": [],
            "headers": [{"name": n, "value": v} for n, v in [(":authority", HOST), *exchange.request_headers.items()]],
            "postData": {"mimeType": "application/json", "text": exchange.request.decode()},
        },
        "response": {
            "status": exchange.status, "statusText": "", "httpVersion": "http/2.0", "cookies": [],
            "headers": [{"name": "content-type", "value": exchange.content_type}],
            "content": content, "redirectURL": "", "headersSize": -1, "bodySize": -1,
        },
        "cache": {}, "timings": {"send": 0, "wait": 0, "receive": 0},
    }  # fmt: skip
    if exchange.error:
        entry["response"]["_error"] = exchange.error
    if exchange.messages is not None:
        entry["_resourceType"] = "websocket"
        entry["_webSocketMessages"] = [
            {
                "type": "send" if from_client else "receive",
                "time": AT.timestamp() + 2 + number,
                "opcode": 1,
                "data": content.decode(),
            }
            for number, (from_client, content) in enumerate(exchange.messages)
        ]
    return entry


def as_captures(folder: Path) -> Path:
    """What `tee_capture` writes."""
    path = folder / "20261102T12-node.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(captured(one)) for one in EXCHANGES))
    return path


def captured(exchange: Exchange) -> bytes:
    """The line of an exchange."""
    capture = Capture(MemoryBudget())
    for at in range(0, len(exchange.body), 50):
        capture.add(exchange.body[at : at + 50])
    for number, (from_client, content) in enumerate(exchange.messages or ()):
        sent_at = datetime.fromtimestamp(AT.timestamp() + 2 + number, UTC)
        capture.add_message(content, from_client=from_client, is_text=True, at=sent_at)
    end = (
        End.CLIENT_LEFT
        if exchange.is_session
        else End.UPSTREAM_BROKE
        if exchange.error
        else End.FINISHED
    )
    return line_of(
        CapturedExchange(
            id=f"flow-{exchange.name}", started_at=AT,
            ended_at=datetime.fromtimestamp(AT.timestamp() + 1, UTC), end=end, cause=exchange.error,
            usage_injected=False, method="GET" if exchange.is_session else "POST", url=exchange.url,
            request_headers=tuple(exchange.request_headers.items()), request_body=exchange.request,
            status=exchange.status,
            response_headers=(("content-type", exchange.content_type),) if exchange.content_type else (),
            capture=capture,
        )
    )  # fmt: skip


def as_lines(folder: Path, *, with_ids: bool = False) -> Path:
    """A test corpus: no ids, no cuts."""
    path = folder / f"corpus-{with_ids}.jsonl"
    lines = []
    for one in EXCHANGES:
        if one.is_session:
            continue
        value: dict[str, Any] = {
            "name": one.name,
            "started_at": AT.isoformat(),
            "request": {
                "method": "POST",
                "url": one.url,
                "headers": one.request_headers,
                "body": json.loads(one.request),
            },
            "response": {
                "status": one.status,
                "headers": {"content-type": one.content_type},
                "body_b64": base64.b64encode(one.body).decode(),
            },
        }
        if with_ids:
            value["id"] = f"flow-{one.name}"
        lines.append(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n")
    return path


FILE_KINDS: dict[str, Callable[[Path], Path]] = {
    "captures": as_captures,
    "flows": as_flows,
    "mitmproxy-har": as_mitmproxy_har,
    "chrome-har": lambda folder: as_browser_har(folder, is_base64=True),
    "firefox-har": lambda folder: as_browser_har(folder, is_base64=False),
    "lines": as_lines,
    "lines-with-ids": lambda folder: as_lines(folder, with_ids=True),
}
