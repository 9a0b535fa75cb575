"""What a proxy adds to a call, in the form that others publish: milliseconds at p50 and p99,
requests a second and peak memory, at ten calls at once and an upstream that answers at once.

    uv run python -m tests.bench --parts overhead

Three wire formats, whole answers and streams, in turn: straight to upstream, through bare mitmdump,
through ours, and through two gateways, where they can be installed (LiteLLM with uv, Portkey with
npm; OpenAI's and Anthropic's format). What is added is a quantile less the same quantile of the
straight calls of the round. Beside it stands whether an exchange is on disk before its client sees
the end.
"""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.bench_proxy import (
    HARNESS_CORE,
    PROXY_CORE,
    Proxy,
    on_core,
    proxy,
    wait_for_port,
)

AT_ONCE = 10
GATEWAYS = {
    "LiteLLM": ["uv", "pip", "install", "--quiet", "--python", "{}/bin/python", "litellm[proxy]"],
    "Portkey": ["npm", "install", "--silent", "--prefix", "{}", "@portkey-ai/gateway"],
}
"""Name -> what installs it into a folder."""
GATEWAY_FORMATS = ("openai.chat", "anthropic.messages")
INSTALL_SECONDS_MAX = 600
WARM_UP_SECONDS = 1.0
FRAMES = 20
_ID = "00000000"
"""In every answer; each gets one of its own: the same id again would be counted once."""
_TEXT = "All work and no play makes a dull day. "
_PROMPT = [{"role": "user", "content": "Tell me about ledgers. " * 40}]
_CANDIDATE = {"content": {"role": "model", "parts": [{"text": _TEXT}]}}
_GEMINI = {
    "candidates": [_CANDIDATE],
    "usageMetadata": {"promptTokenCount": 1_200, "candidatesTokenCount": 200},
    "modelVersion": "gemini-2.5-flash",
    "responseId": _ID,
}
_CHUNK = {"id": f"chatcmpl-{_ID}", "object": "chat.completion.chunk", "model": "gpt-4.1"}
_USED = {"prompt_tokens": 1_200, "completion_tokens": 200, "total_tokens": 1_400}
_MESSAGE = {
    "id": f"msg_{_ID}",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "stop_reason": None,
}
_DELTA = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": _TEXT},
}

FORMATS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = {
    "openai.chat": (
        "/v1/chat/completions",
        "/v1/chat/completions",
        {"model": "gpt-4.1", "messages": _PROMPT, "stream_options": {"include_usage": True}},
        {
            **_CHUNK,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"content": _TEXT * 20}, "finish_reason": "stop"}],
            "usage": _USED,
        },
        [
            *[{**_CHUNK, "choices": [{"index": 0, "delta": {"content": _TEXT}}]}] * FRAMES,
            {**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**_CHUNK, "choices": [], "usage": _USED},
        ],
    ),
    "anthropic.messages": (
        "/v1/messages",
        "/v1/messages",
        {"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": _PROMPT},
        {
            **_MESSAGE,
            "content": [{"type": "text", "text": _TEXT * 20}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1_200, "output_tokens": 200},
        },
        [
            {
                "type": "message_start",
                "message": {**_MESSAGE, "usage": {"input_tokens": 1_200, "output_tokens": 1}},
            },
            *[_DELTA] * FRAMES,
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 200},
            },
            {"type": "message_stop"},
        ],
    ),
    "gemini.generate_content": (
        "/v1beta/models/gemini-2.5-flash:generateContent",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": _PROMPT[0]["content"]}]}]},
        {**_GEMINI, "candidates": [{**_CANDIDATE, "finishReason": "STOP"}]},
        [*[_GEMINI] * FRAMES, {**_GEMINI, "candidates": [{"finishReason": "STOP"}]}],
    ),
}
"""Name -> path of a whole answer and of a stream, the request, the answer, the frames."""


def _answers() -> dict[bytes, bytes]:
    """Whole HTTP answers by path; a stream's has `-stream` behind it."""
    made = {}
    for path, stream_path, _, document, frames in FORMATS.values():
        body = json.dumps(document).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        made[path.encode()] = head % len(body) + body
        events = [b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        stream = head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        made[stream_path.encode() + b"-stream"] = stream
    return made


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    """The head and the body of one message."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"content-length: " in lower:
        length = int(lower.partition(b"content-length: ")[2].partition(b"\r")[0])
        return head + await reader.readexactly(length)
    return head + await reader.readuntil(b"0\r\n\r\n")


async def serve() -> None:
    """The upstream: prints its port, ends when standard input does."""
    answers, count = _answers(), 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        while True:
            try:
                request = await _read_body(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                return writer.close()
            path = request.split(b" ", 2)[1]
            path = path if b"alt=sse" in path else path.partition(b"?")[0]
            is_stream = b'"stream":true' in request.replace(b" ", b"") or b"alt=sse" in path
            count += 1
            made = answers[path + b"-stream" if is_stream else path]
            writer.write(made.replace(_ID.encode(), b"%08d" % count))

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def installed(folder: Path, upstream_port: int) -> list[str]:
    """The gateways that could be installed there, and start."""
    found = []
    for name, words in GATEWAYS.items():
        place = folder / name
        try:
            if words[0] == "uv":
                subprocess.run(["uv", "venv", "--quiet", place], check=True)
            command = [word.format(place) for word in words]
            subprocess.run(command, check=True, timeout=INSTALL_SECONDS_MAX)
            with gateway(name, upstream_port, folder):
                found.append(name)
        except (OSError, subprocess.SubprocessError, SystemExit) as failure:
            print(f"{name} is left out: {failure}")
    return found


@contextlib.contextmanager
def gateway(name: str, upstream_port: int, folder: Path) -> Iterator[Proxy]:
    """An installed gateway in front of the upstream."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    if name == "Portkey":
        script = folder / name / "node_modules/@portkey-ai/gateway/build/start-server.js"
        command = ["node", str(script), f"--port={port}", "--headless"]
    else:
        url, models = f"http://127.0.0.1:{upstream_port}", []
        for vendor, model, path in (
            ("openai", "gpt-4.1", "/v1"),
            ("anthropic", "claude-sonnet-4-5", ""),
        ):
            goes_to = {"model": f"{vendor}/{model}", "api_base": url + path, "api_key": "sk-bench"}
            models.append({"model_name": model, "litellm_params": goes_to})
        settings = folder / "litellm.json"  # JSON is YAML, too
        settings.write_text(json.dumps({"model_list": models}))
        program = folder / name / "bin/litellm"
        command = [str(program), "--config", str(settings), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--num_workers", "1"]
    with (folder / f"{name}.log").open("ab") as log, on_core(PROXY_CORE):
        local = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env=os.environ | local
        )
    try:
        wait_for_port(port, process, INSTALL_SECONDS_MAX)
        yield Proxy(name=name, process=process, port=port)
    finally:
        process.terminate()
        process.wait()


async def load(port: int, name: str, kind: str, seconds: float, upstream: str) -> None:
    """Ten calls at once, for some seconds; prints the quantiles in milliseconds, and the rate.
    `upstream`: where Portkey is to send them."""
    path, stream_path, request, *_ = FORMATS[name]
    is_stream = kind == "stream"
    says_so = is_stream and "stream" not in stream_path  # Gemini says it in the path
    body = json.dumps({**request, "stream": True} if says_so else request).encode()
    head = (
        f"POST {stream_path if is_stream else path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        "authorization: Bearer sk-bench\r\ncontent-type: application/json\r\n"
        f"x-portkey-provider: {name.partition('.')[0]}\r\nx-portkey-custom-host: {upstream}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    sent, took, until = head.encode() + body, list[float](), time.perf_counter() + seconds

    async def call() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (begun := time.perf_counter()) < until:
            writer.write(sent)
            answer = await _read_body(reader)
            if b" 200 " not in answer[:20]:
                raise SystemExit(f"{name}, {kind}: {answer[:300]!r}")
            took.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(call() for _ in range(AT_ONCE)))
    cuts = statistics.quantiles(took, n=100)
    figures = {"p50_ms": cuts[49] * 1_000, "p99_ms": cuts[98] * 1_000, "rate": len(took) / seconds}
    print(json.dumps(figures))


def measure(*, rounds: int, seconds: float, names: Sequence[str]) -> dict[str, Any]:
    """The medians over the rounds, by proxy, wire format and kind; printed as a table."""
    module = [sys.executable, "-m", "tests.bench.bench_overhead"]
    found: dict[str, dict[str, list[float]]] = {}
    peaks: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as folder, on_core(HARNESS_CORE):
        upstream = subprocess.Popen(
            [*module, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert upstream.stdin is not None
        assert upstream.stdout is not None
        port = int(upstream.stdout.readline())

        def play(at: int, name: str, kind: str, for_seconds: float) -> dict[str, float]:
            url = f"http://127.0.0.1:{port}/v1"
            words = [*module, "load", str(at), name, kind, str(for_seconds), url]
            played: dict[str, float] = json.loads(subprocess.check_output(words))
            return played

        try:
            gateways = installed(Path(folder), port)
            for number in range(rounds):
                for who in ("bare", *names, *gateways):
                    place = Path(folder) / f"{who}-{number}"
                    place.mkdir()
                    started = (
                        gateway(who, port, Path(folder))
                        if who in gateways
                        else proxy(who, port, place)
                    )
                    with started as running:
                        for name in GATEWAY_FORMATS if who in gateways else FORMATS:
                            for kind in ("json", "stream"):
                                try:
                                    play(running.port, name, kind, WARM_UP_SECONDS)
                                except subprocess.CalledProcessError:
                                    if who not in gateways:
                                        raise
                                    print(f"{who} does not answer {name}, {kind}: left out")
                                    continue
                                straight = play(port, name, kind, seconds)
                                through = play(running.port, name, kind, seconds)
                                its = found.setdefault(f"{who}, {name}, {kind}", {})
                                for word in ("p50_ms", "p99_ms"):
                                    added = through[word] - straight[word]
                                    its.setdefault(f"added_{word}", []).append(added)
                                its.setdefault("rate", []).append(through["rate"])
                        status = Path(f"/proc/{running.process.pid}/status").read_text()
                        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
                        peaks[who] = max(peak, peaks.get(who, 0.0))
        finally:
            upstream.stdin.close()
            upstream.stdout.close()
            upstream.wait()
    medians = {
        key: {word: statistics.median(values) for word, values in lists.items()}
        for key, lists in found.items()
    }
    table = Table(title=f"added by a proxy, {AT_ONCE} calls at once, instant upstream")
    for title in (
        "",
        "added p50 ms",
        "added p99 ms",
        "requests /s",
        "peak MB",
        "on disk at the end",
    ):
        table.add_column(title, justify="right" if title else "left")
    durable = dict.fromkeys(gateways, "no") | dict.fromkeys(names, "yes") | {"bare": "-"}
    for key, middle in medians.items():
        who = key.partition(",")[0]
        cells = (
            f"{middle['added_p50_ms']:.2f}",
            f"{middle['added_p99_ms']:.2f}",
            f"{middle['rate']:.0f}",
        )
        table.add_row(key, *cells, f"{peaks[who]:.0f}", durable[who])
    Console(width=120).print(table)
    return {"medians": medians, "peak_mb": peaks, "rounds": found}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        asyncio.run(
            load(int(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5]), sys.argv[6])
        )
