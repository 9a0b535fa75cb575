"""Counters, their bounds, that Prometheus' own tool takes them; spans and metrics as an OTLP receiver
gets them."""

import contextlib
import dataclasses
import json
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from addon.parts.telemetry import metrics as module
from addon.parts.telemetry.metrics import Metrics, metrics_of_workers
from addon.parts.telemetry.otlp import BROKEN, OPT_IN_VARIABLE, SCHEMA_URL, Otlp
from addon.proxy.health import Health
from ledger.model.exchange import Outcome, Quota, QuotaKind, UsageSource
from tests.addon.parts.telemetry.made import NOON, line, one, reading

FINE = Health(writer_alive=True, shipper_alive=True, waiting_to_ship=3, oldest_waiting_seconds=1.5)


def samples(metrics):
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def metrics():
    return Metrics(lambda: FINE)


MODEL = "gpt-4.1-2025-04-14"


def test_tokens_and_cost_by_model(metrics):
    read = reading(
        input_tokens=100,
        cache_read_tokens=80,
        cache_write_tokens=0,
        output_tokens=20,
        reasoning_tokens=5,
    )
    metrics.observe(one(read, (line(2 * 10**12),)))
    metrics.observe(one(read, (line(10**12),)))
    found = samples(metrics)
    assert found["tokentee_requests_total", "complete", MODEL, "openai"] == 2
    assert found["tokentee_tokens_total", MODEL, "openai", "uncached_input"] == 40
    assert found["tokentee_tokens_total", "cache_read", MODEL, "openai"] == 160
    assert found["tokentee_tokens_total", MODEL, "openai", "reasoning"] == 10
    tokens = [value for key, value in found.items() if key[0] == "tokentee_tokens_total"]
    assert sum(tokens) == 2 * (100 + 20)
    assert found["tokentee_cost_usd_total", MODEL, "openai"] == 3
    assert ("tokentee_requests_unpriced_total", MODEL, "openai") not in found


def test_estimates_are_in_no_counter_of_tokens_or_cost(metrics):
    metrics.observe(one(reading(UsageSource.ESTIMATED, output_tokens=10), (line(),)))
    metrics.observe(one(reading(UsageSource.NONE), ()))
    found = samples(metrics)
    assert found["tokentee_requests_without_usage_total", MODEL, "openai"] == 1
    assert found["tokentee_requests_estimated_total", MODEL, "openai"] == 1
    assert not any(name.startswith(("tokentee_tokens", "tokentee_cost")) for name, *_ in found)


def test_degraded_unpriced_and_durations(metrics):
    metrics.observe(one(charges=(line(None),), degraded="why", outcome=Outcome.CLIENT_LEFT))
    metrics.observe(one(first_token_at=None))
    found = samples(metrics)
    assert found["tokentee_requests_degraded_total", "openai"] == 1
    assert found["tokentee_requests_unpriced_total", MODEL, "openai"] == 1
    assert found["tokentee_duration_seconds_count", "openai"] == 2
    assert found["tokentee_time_to_first_token_seconds_count", "openai"] == 1


def test_health_stands_beside(metrics):
    found = samples(metrics)
    assert found["tokentee_ready",] == 1
    assert found["tokentee_shipping_waiting",] == 3
    assert found["tokentee_shipping_lag_seconds",] == 1.5
    assert ("tokentee_wal_bytes",) not in found


def test_labels_are_bounded_however_many_names_an_upstream_invents(monkeypatch, metrics):
    monkeypatch.setattr(module, "MODEL_LABELS_MAX", 2)
    for number in range(5):
        metrics.observe(one(response_model=f"m{number}\n" + "x" * 500))
    found = samples(metrics)
    models = {key for key in found if key[0] == "tokentee_requests_total"}
    assert len(models) == 3
    assert found["tokentee_requests_total", "complete", "openai", "other"] == 3
    assert all(len(part) <= 100 for key in models for part in key[1:])
    metrics.close(1)


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_the_exposition(metrics):
    metrics.observe(one())
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(metrics.registry),
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def quota(window, used_ppm, **more):
    return Quota(window=window, window_name=window, kind=QuotaKind.PLAN, used_ppm=used_ppm, **more)


def test_limits_as_the_last_answer_stated_them(metrics):
    for used in (100_000, 250_000):
        stated = (quota("5h", used, resets_at=datetime(2026, 11, 2, tzinfo=UTC)), quota("7d", None))
        metrics.observe(one(quotas=stated, account="0123456789abcdef"))
    found = samples(metrics)
    of_window = ("01234567", "openai", "plan")
    assert found["tokentee_limit_used_ratio", of_window[0], "5h", *of_window[1:]] == 0.25
    resets = found["tokentee_limit_resets_timestamp_seconds", of_window[0], "5h", *of_window[1:]]
    assert resets == datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    assert not [key for key in found if "7d" in key]


def test_made_up_limits_are_bounded(metrics):
    for number in range(2 * module.LIMIT_LABELS_MAX):
        metrics.observe(one(quotas=(quota(f"w{number}", 1),)))
    found = [key for key in samples(metrics) if key[0] == "tokentee_limit_used_ratio"]
    assert len(found) == module.LIMIT_LABELS_MAX


COUNT = """
import os, signal, sys
from pathlib import Path
from addon.parts.telemetry import metrics as module
from addon.proxy.health import Health, MetricFiles
from addon.parts.telemetry.metrics import metrics_of_worker
from tests.addon.parts.telemetry.made import one
module.MODEL_LABELS_MAX = 3
files = MetricFiles(folder=Path(sys.argv[1]), index=int(sys.argv[2]))
metrics = metrics_of_worker(files, lambda: Health(writer_alive=True), dropped_observations=lambda: 0)
for model in sys.argv[3:]:
    metrics.observe(one(response_model=model))
os.kill(os.getpid(), signal.SIGKILL)
"""


def count(folder: Path, index: int, *models: str) -> None:
    """A worker that counts and is killed."""
    subprocess.run(
        [sys.executable, "-c", COUNT, str(folder), str(index), *models], check=False, timeout=100
    )


@pytest.mark.process
def test_what_killed_workers_counted_stays_and_adds_up(tmp_path: Path):
    count(tmp_path, 0, "a", "b")
    count(tmp_path, 1, "a")
    count(tmp_path, 0, "a", "c", "d")
    health = Health(writer_alive=True, workers=2, worker_restarts=3)
    metrics = metrics_of_workers(tmp_path, lambda: health, dropped_observations=lambda: 4)
    text = generate_latest(metrics).decode()
    wanted = {"a": 3, "b": 1, "c": 1, "other": 1}
    for model, requests in wanted.items():
        labels = f'model="{model}",outcome="complete",provider="openai"'
        assert f"tokentee_requests_total{{{labels}}} {requests}.0" in text, text
    assert 'model="d"' not in text, "an index's next process goes on with the labels that it has"
    assert "tokentee_workers 2.0" in text
    assert "tokentee_worker_restarts_total 3.0" in text
    assert "tokentee_observations_dropped_total 4.0" in text
    assert 'tokentee_duration_seconds_count{provider="openai"} 6.0' in text
    assert len(list(tmp_path.glob("*.db"))) == 4, json.dumps([str(p) for p in tmp_path.iterdir()])


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
            assert {scope.schema_url for scope in resource.scope_spans} == {SCHEMA_URL}
            found += [span for scope in resource.scope_spans for span in scope.spans]
    return found


def points(receiver):
    found: dict[str, list[Any]] = {}
    for body in receiver.got["/v1/metrics"]:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    assert scope.schema_url == SCHEMA_URL
                    data = metric.sum if metric.WhichOneof("data") == "sum" else metric.histogram
                    found.setdefault(metric.name, []).extend(data.data_points)
    return found


def test_a_call_is_one_span_with_the_conventions_names(receiver):
    sink = Otlp(receiver.url)
    read = reading(
        input_tokens=1_204,
        cache_read_tokens=1_024,
        cache_write_tokens=0,
        output_tokens=87,
        reasoning_tokens=12,
        input_audio_tokens=100,
    )
    begun = {"streamed": True, "first_byte_at": NOON + timedelta(milliseconds=125)}
    sink.observe(one(read, (line(3_100_000_000),), **begun))
    sink.close(10)
    (span,) = spans(receiver)
    assert span.name == "chat gpt-4.1"
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
        "gen_ai.usage.cache_write.input_tokens": 0,
        "gen_ai.usage.output_tokens": 87,
        "gen_ai.usage.reasoning.output_tokens": 12,
        "gen_ai.usage.audio.input_tokens": 100,
        "server.address": "api.openai.com",
        "server.port": 443,
        "tokentee.outcome": "complete",
        "tokentee.cost_usd": 0.0031,
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": 0.125,
        "gen_ai.usage.cost.amount": 0.0031,
        "gen_ai.usage.cost.currency": "USD",
        "gen_ai.usage.cost.source": "local",
    }
    found = points(receiver)
    used = "gen_ai.client.inference.usage."
    assert {
        name.removeprefix(used): [point.as_int for point in its]
        for name, its in found.items()
        if name.startswith(used)
    } == {
        "input_tokens": [1_204],
        "cache_read.input_tokens": [1_024],
        "cache_write.input_tokens": [0],
        "output_tokens": [87],
        "reasoning.output_tokens": [12],
    }
    (inputs,) = found["gen_ai.client.inference.operation.input_tokens"]
    (outputs,) = found["gen_ai.client.inference.operation.output_tokens"]
    assert (inputs.sum, outputs.sum) == (1_204, 87)
    assert list(inputs.explicit_bounds[:3]) == [1, 4, 16]
    (duration,) = found["gen_ai.client.inference.duration"]
    assert duration.sum == 2
    (first,) = found["gen_ai.client.inference.time_to_first_chunk"]
    assert first.sum == 0.125
    assert not {*OLD_NAMES} & {*found}


OLD_NAMES = (
    "gen_ai.client.token.usage",
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
)


def test_the_old_names_beside_the_new_ones_behind_an_option(receiver, monkeypatch):
    monkeypatch.setenv(OPT_IN_VARIABLE, "http,gen_ai/dup")
    sink = Otlp(receiver.url)
    read = reading(input_tokens=30, cache_write_tokens=20, output_tokens=5)
    sink.observe(one(read, (), streamed=True, first_byte_at=NOON))
    sink.close(10)
    (span,) = spans(receiver)
    said = attributes(span.attributes)
    assert said["gen_ai.usage.cache_creation.input_tokens"] == 20
    assert said["gen_ai.usage.cache_write.input_tokens"] == 20
    found = points(receiver)
    tokens = {
        attributes(point.attributes)["gen_ai.token.type"]: point.sum
        for point in found[OLD_NAMES[0]]
    }
    assert tokens == {"input": 30, "output": 5}
    assert [found[name][0].sum for name in OLD_NAMES[1:]] == [2, 0.25]
    assert found["gen_ai.client.inference.duration"][0].sum == 2


@pytest.mark.parametrize("option", ["", "gen_ai/dup"])
def test_embeddings_have_metrics_of_their_own_name(option, receiver, monkeypatch):
    monkeypatch.setenv(OPT_IN_VARIABLE, option)
    sink = Otlp(receiver.url)
    failed: dict[str, Any] = {"outcome": Outcome.HTTP_ERROR, "http_status": 429}
    embeddings: dict[str, Any] = {"operation": "embeddings", "first_token_at": None}
    sink.observe(one(reading(input_tokens=30, output_tokens=0), **embeddings))
    sink.observe(one(reading(UsageSource.NONE), **embeddings, **failed))
    sink.close(10)
    assert [span.name for span in spans(receiver)] == ["embeddings gpt-4.1"] * 2
    found = points(receiver)
    old = {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} if option else set()
    assert {*found} == old | {
        "gen_ai.client.embeddings.duration",
        "gen_ai.client.embeddings.operation.input_tokens",
    }
    assert len(found["gen_ai.client.embeddings.duration"]) == 2, "one has an error.type"
    (tokens,) = found["gen_ai.client.embeddings.operation.input_tokens"]
    assert (tokens.count, tokens.sum) == (1, 30)
    assert attributes(tokens.attributes)["gen_ai.operation.name"] == "embeddings"
    if option:
        (old_tokens,) = found["gen_ai.client.token.usage"]
        assert attributes(old_tokens.attributes)["gen_ai.token.type"] == "input"


def test_what_depends_on_the_call_in_the_conventions(receiver):
    sink = Otlp(receiver.url)
    sink.observe(one(operation="rerank", provider="moonshot"))
    for outcome in BROKEN:
        sink.observe(one(streamed=True, finish_reason=None, outcome=outcome))
    paid = reading(input_tokens=1, reported_cost_picousd=7)
    charged = replace(line(7), price_source="provider")
    sink.observe(one(paid, (charged,)))
    sink.close(10)
    reranked, *broken, reported = (attributes(span.attributes) for span in spans(receiver))
    assert reranked["gen_ai.provider.name"] == "moonshot_ai"
    assert [one["gen_ai.response.finish_reasons"] for one in broken] == [["error"]] * len(BROKEN)
    assert reported["gen_ai.usage.cost.source"] == "provider"
    found = points(receiver)
    assert [point.count for point in found["gen_ai.client.operation.duration"]] == [1]
    assert sum(point.count for point in found["gen_ai.client.inference.duration"]) == 4


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


def test_what_a_cap_refused_is_in_a_counter_of_its_own_alone():
    metrics = Metrics(lambda: dataclasses.replace(FINE, cap_shares=(("daily", 0.5),)))
    refused = one(reading(), (), outcome=Outcome.REFUSED, error_code="daily")
    metrics.observe(refused)
    found = samples(metrics)
    assert found["tokentee_refused_total", "daily"] == 1
    assert found["tokentee_cap_spent_ratio", "daily"] == 0.5
    assert not [key for key in found if key[0] == "tokentee_requests_total"]
    assert not refused.is_without_usage
