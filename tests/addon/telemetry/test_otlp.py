"""Spans and metrics as an OTLP receiver gets them."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from addon.telemetry.otlp import Otlp
from ledger.model.exchange import Outcome
from ledger.model.reading import UsageSource
from tests.addon.telemetry.made import NOON, line, one, reading


class ReceiverServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.got: dict[str, list[bytes]] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    server: ReceiverServer

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.got.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def receiving() -> Iterator[ReceiverServer]:
    server = ReceiverServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(items):
    return {item.key: value_of(item.value) for item in items}


def spans(receiver):
    found = []
    for body in receiver.got["/v1/traces"]:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            assert attributes(resource.resource.attributes)["service.name"] == "tokentee"
            found += [span for scope in resource.scope_spans for span in scope.spans]
    return found


def points(receiver):
    found: dict[str, list[Any]] = {}
    for body in receiver.got["/v1/metrics"]:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found.setdefault(metric.name, []).extend(metric.histogram.data_points)
    return found


def test_a_call_is_one_span_with_the_conventions_names(receiver):
    sink = Otlp(receiver.url)
    read = reading(
        input_tokens=1_204,
        cache_read_tokens=1_024,
        cache_write_tokens=0,
        output_tokens=87,
        reasoning_tokens=12,
    )
    sink.observe(one(read, (line(3_100_000_000),)))
    sink.close(10)
    (span,) = spans(receiver)
    assert span.name == "chat gpt-4.1-2025-04-14"
    assert span.kind == 3  # client
    assert span.end_time_unix_nano - span.start_time_unix_nano == 2 * 10**9
    assert span.start_time_unix_nano == int(NOON.timestamp()) * 10**9
    assert attributes(span.attributes) == {
        "tokentee.billing": "unknown",
        "tokentee.list_value_usd": 0.0031,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.response.model": "gpt-4.1-2025-04-14",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.conversation.id": "s1",
        "gen_ai.usage.input_tokens": 1_204,
        "gen_ai.usage.cache_read.input_tokens": 1_024,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.output_tokens": 87,
        "gen_ai.usage.reasoning.output_tokens": 12,
        "server.address": "api.openai.com",
        "server.port": 443,
        "tokentee.outcome": "complete",
        "tokentee.cost_usd": 0.0031,
    }
    found = points(receiver)
    tokens = {
        attributes(point.attributes)["gen_ai.token.type"]: point
        for point in found["gen_ai.client.token.usage"]
    }
    assert (tokens["input"].sum, tokens["output"].sum) == (1_204, 87)
    assert list(tokens["input"].explicit_bounds[:3]) == [1, 4, 16]
    (duration,) = found["gen_ai.client.operation.duration"]
    assert duration.sum == 2
    (first,) = found["gen_ai.client.operation.time_to_first_chunk"]
    assert first.sum == 0.25


def test_errors_and_what_is_not_reported(receiver):
    sink = Otlp(f"{receiver.url}/")
    sink.observe(
        one(
            reading(UsageSource.ESTIMATED, output_tokens=10),
            (line(),),
            outcome=Outcome.HTTP_ERROR,
            http_status=429,
            response_id=None,
            response_model=None,
            request_model=None,
            finish_reason=None,
            session_id=None,
            first_token_at=None,
            origin="stream",
        )
    )
    sink.close(10)
    (span,) = spans(receiver)
    assert span.status.code == 2  # error
    assert attributes(span.attributes) == {
        "tokentee.billing": "unknown",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "error.type": "429",
        "server.address": "stream",
        "tokentee.outcome": "http_error",
    }
    assert "gen_ai.client.token.usage" not in points(receiver)


@pytest.mark.large
def test_a_receiver_that_is_down_costs_one_line(caplog):
    sink = Otlp("http://127.0.0.1:9")
    for _ in range(3):
        sink.observe(one())
    with caplog.at_level(logging.WARNING):
        sink.close(1)
    lines = [record for record in caplog.records if "tokentee: OpenTelemetry" in record.message]
    assert len(lines) <= 1
    assert all(record.levelno == logging.WARNING for record in lines)
