"""A recorder in this process, with a real ledger, and flows that pass through its hooks."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow

from addon.proxy.lifecycle import Leaving
from addon.proxy.recorder import Recorder
from addon.proxy.wrapped import StreamEvents
from ledger.store import db
from tests.ledger.written import rows

HEAD = b'"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"gpt-4o"'
WORD = b"data: {" + HEAD + b',"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
STOP = b"data: {" + HEAD + b',"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b"data: {" + HEAD + b',"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = (WORD, STOP, USAGE, DONE)
DOCUMENT = (
    b'{"id":"chatcmpl-7","object":"chat.completion","created":5,"model":"gpt-4o","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}'
)


def flow_of(
    *,
    stream: bool = False,
    asks: bool = False,
    host: str = "api.openai.com",
    headers: dict[str, str] | None = None,
    live: bool = True,
) -> http.HTTPFlow:
    """A chat request; `asks`: its client asks for usage itself."""
    body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
    if stream:
        body["stream"] = True
    if asks:
        body["stream_options"] = {"include_usage": True}
    sent: dict[str | bytes, str | bytes] = {"content-type": "application/json"}
    sent.update((headers or {}).items())
    request = http.Request.make(
        "POST", f"https://{host}/v1/chat/completions", json.dumps(body), sent
    )
    return tflow.tflow(req=request, live=live)


def answered(
    flow: http.HTTPFlow, status: int = 200, content: bytes = b"", **headers: str
) -> http.Response:
    """The flow's answer; of `content_type` and the like."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    flow.response = http.Response.make(status, content, named)
    if not content:
        del flow.response.headers["content-length"]
        flow.response.headers.update(named)
    return flow.response


def passed_on(response: http.Response, chunks: Iterable[bytes]) -> bytes:
    """What mitmproxy would send to the client of these chunks."""
    assert callable(response.stream)
    sent = b""
    for chunk in (*chunks, b""):
        given = response.stream(chunk)
        sent += given if isinstance(given, bytes) else b"".join(given)
    return sent


@asynccontextmanager
async def recording(
    ledger: Path, *, recorder: Recorder | None = None, **options: Any
) -> AsyncIterator[tuple[Recorder, taddons.context]]:
    """A recorder that has been started, and is stopped at the end."""
    recorder = recorder or Recorder()
    with taddons.context(Proxyserver(), recorder) as context:
        context.options.update(ledger_url=f"sqlite:///{ledger}", **options)
        recorder.running()
        try:
            yield recorder, context
        finally:
            context.master.should_exit.set()
            for addon in (recorder, context.master.addons.get(Leaving.name)):
                stopping = addon.done() if addon is not None else None
                if stopping is not None:
                    await stopping


def events_of(recorder: Recorder) -> StreamEvents:
    """What the patches on mitmproxy's streams call while this recorder records."""
    assert recorder.recording is not None
    return StreamEvents(recorder.recording)


def exchanges(ledger: Path, columns: str = "state, outcome, response_id") -> list[Any]:
    """The rows of a ledger, the oldest first."""
    engine = db.open_engine(f"sqlite:///{ledger}")
    try:
        return rows(engine, f"SELECT {columns} FROM exchanges ORDER BY opened_at, id")
    finally:
        engine.dispose()
