"""Edge (OpenTelemetry SDK). GenAI client spans and metrics of settled exchanges, over OTLP.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ and .../gen-ai-metrics/. Token
counts are the reported ones: input includes cached tokens, output includes reasoning, as the
conventions say; estimates are left out, as the conventions ask. No content is ever sent. If an
exporter is down, only its spans are lost: the SDK's queues are bounded, and its own error lines are
throttled.

Installed with `tokentee[otel]`.
"""

import logging
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from addon.telemetry.observer import Observed
from ledger.model.money import PICOUSD_PER_USD
from ledger.store.processes.supervision import ThrottledLog, log_into

logger = logging.getLogger(__name__)

EXPORT_SECONDS_MAX = 5
QUEUE_SPANS_MAX = 2_048
METRIC_PERIOD_MS = 60_000
MESSAGE_LENGTH_MAX = 300

TOKEN_BUCKETS = tuple(4**power for power in range(14))
"""1, 4, 16 … 67 108 864: the conventions' own boundaries."""
DURATION_BUCKETS = tuple(0.01 * 2**power for power in range(14))
"""10 ms, 20 ms … 81.92 s: the conventions' own boundaries."""

type Attributes = dict[str, str | int | float | list[str]]


class Otlp:
    """A sink that exports to an OTLP/HTTP endpoint."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: the base URL, as OTEL_EXPORTER_OTLP_ENDPOINT has it; headers, certificates
        and compression come from the environment, as the specification has it."""
        library = logging.getLogger("opentelemetry")
        self._undo: tuple[Callable[[], None], ...] = ()
        if not any(isinstance(handler, _Throttle) for handler in library.handlers):
            throttle = _Throttle()
            self._undo = (
                partial(setattr, library, "propagate", library.propagate),
                partial(library.removeHandler, throttle),
            )
            library.addHandler(throttle)
            library.propagate = False
        base = endpoint.rstrip("/")
        # Without it, a receiver reads the sums of two processes as one sum that goes up and down:
        # https://opentelemetry.io/docs/specs/semconv/resource/#service
        resource = Resource.create(
            {"service.name": "tokentee", "service.instance.id": str(uuid.uuid4())}
        )
        self._tracing = TracerProvider(resource=resource)
        self._tracing.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=EXPORT_SECONDS_MAX),
                max_queue_size=QUEUE_SPANS_MAX,
            )
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=EXPORT_SECONDS_MAX),
            export_interval_millis=METRIC_PERIOD_MS,
            export_timeout_millis=EXPORT_SECONDS_MAX * 1000,
        )
        self._metering = MeterProvider(resource=resource, metric_readers=[reader])
        self._tracer = self._tracing.get_tracer("tokentee")
        meter = self._metering.get_meter("tokentee")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time to receive the first chunk of the response",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )

    def observe(self, one: Observed) -> None:
        """Make a span of an exchange, and record its figures."""
        address, port = one.server
        stated = {
            "gen_ai.operation.name": one.exchange.operation,
            "gen_ai.provider.name": one.exchange.provider,
            "server.address": address,
            "server.port": port,
            "gen_ai.request.model": one.exchange.request_model or None,
            "gen_ai.response.model": one.exchange.response_model or None,
        }
        common: Attributes = {name: value for name, value in stated.items() if value is not None}
        failed: Attributes = {"error.type": one.error_type} if one.error_type else {}
        span = self._tracer.start_span(
            f"{one.exchange.operation} {one.model}",
            kind=SpanKind.CLIENT,
            attributes={**common, **failed, **_of_span(one)},
            start_time=_nanoseconds(one.exchange.opened_at),
        )
        if one.error_type is not None:
            span.set_status(Status(StatusCode.ERROR, str(one.exchange.outcome)))
        span.end(max(_nanoseconds(one.exchange.opened_at), _nanoseconds(one.settled_at)))
        self._duration.record(one.seconds, {**common, **failed})
        if one.seconds_to_first_token is not None:
            self._first_chunk.record(one.seconds_to_first_token, common)
        if one.has_usage and not one.is_estimated:
            usage = one.reading.usage
            for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                if count is not None:
                    self._tokens.record(count, {**common, "gen_ai.token.type": kind})

    def close(self, timeout_seconds: float) -> None:
        """Flush, within the timeout."""
        milliseconds = max(1, int(timeout_seconds * 500))
        self._tracing.force_flush(milliseconds)
        self._metering.shutdown(milliseconds)
        self._tracing.shutdown()
        for undo in self._undo:
            undo()


def _of_span(one: Observed) -> Attributes:
    exchange, usage, amounts = one.exchange, one.reading.usage, one.amounts
    attributes: dict[str, str | int | float | list[str] | None] = {
        "tokentee.outcome": str(exchange.outcome),
        "tokentee.billing": one.billing,
        "gen_ai.response.id": exchange.response_id or None,
        "gen_ai.response.finish_reasons": [exchange.finish_reason]
        if exchange.finish_reason
        else None,
        "gen_ai.conversation.id": exchange.session_id or None,
        "tokentee.cost_usd": _usd(amounts.cost_picousd),
        "tokentee.list_value_usd": _usd(amounts.list_value_picousd),
    }
    if one.has_usage and not one.is_estimated:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    return {name: value for name, value in attributes.items() if value is not None}


def _usd(picousd: int | None) -> float | None:
    return None if picousd is None else picousd / PICOUSD_PER_USD


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000


class _Throttle(logging.Handler):
    """Logs at most one line of the SDK a minute, as a warning: an ERROR line would end mitmproxy's
    start."""

    def __init__(self) -> None:
        super().__init__()
        self._log = ThrottledLog(log_into(logger))

    def emit(self, record: logging.LogRecord) -> None:
        """Log the line under our own logger, without its traceback."""
        self._log("warning", f"OpenTelemetry: {record.getMessage()[:MESSAGE_LENGTH_MAX]}")
