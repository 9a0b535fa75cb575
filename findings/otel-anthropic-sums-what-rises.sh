#!/usr/bin/env bash
# Guess: the OpenTelemetry instrumentation for Anthropic writes a stream's last stated usage into the
#   span; `message_delta` is cumulative by the API's documentation, and the SDK under it says so in code.
# Seen: output is the sum of all events: 1 (the placeholder of `message_start`) and 5 are 6, for every
#   stream; two deltas of 3 and 9 are 13. Input and cache stay at `message_start`: with server tools, 170
#   of 400. The same answer without streaming is right. A stream that the application leaves has no
#   span at all, although it is billed.
# Why it matters to a meter: figures of spans and of the wire differ by a little in every stream and by
#   a lot in those with tools; who reconciles the two has to know that the wire is right.
# Versions: opentelemetry-instrumentation-anthropic 0.62.4, opentelemetry-sdk 1.45.2, anthropic 2.14.0;
#   2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    opentelemetry-instrumentation-anthropic==0.62.4 opentelemetry-sdk==1.45.2 anthropic==2.14.0
"$folder/venv/bin/python" - <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
AnthropicInstrumentor().instrument(tracer_provider=provider)


class Provider(BaseHTTPRequestHandler):
    events: list = []

    def do_POST(self):
        streamed = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
        if streamed:
            body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in self.events)
        else:
            body = json.dumps({**message, "stop_reason": "end_turn", "usage": {**begun, "output_tokens": 5}})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


begun = {
    "input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 20
}
message = {"id": "msg", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "content": [],
           "stop_reason": None, "stop_sequence": None, "usage": begun}
head = [
    {"type": "message_start", "message": message},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_stop", "index": 0},
]


def delta(**usage):
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage}


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
call = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}


def spans():
    found = [
        (span.attributes["gen_ai.usage.input_tokens"], span.attributes["gen_ai.usage.output_tokens"])
        for span in exporter.get_finished_spans()
    ]
    exporter.clear()
    return found


def streamed(*deltas, leave=False):
    Provider.events = [*head, *deltas, {"type": "message_stop"}]
    for number, _ in enumerate(client.messages.create(**call, stream=True)):
        if leave and number == 2:
            break
    return spans()


client.messages.create(**call)
tools = delta(input_tokens=300, output_tokens=5, cache_read_input_tokens=60, cache_creation_input_tokens=40)
seen = {
    "not streamed, right 170/5": spans(),
    "streamed, right 170/5": streamed(delta(output_tokens=5)),
    "two deltas, right 170/9": streamed(delta(output_tokens=3), delta(output_tokens=9)),
    "server tools, right 400/5": streamed(tools),
    "left, right 170/1 or more": streamed(delta(output_tokens=5), leave=True),
}
for name, found in seen.items():
    print(f"{name:28}", found)
assert list(seen.values()) == [[(170, 5)], [(170, 6)], [(170, 13)], [(170, 6)], []]
PYTHON
