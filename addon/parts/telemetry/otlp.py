"""Edge (OpenTelemetry SDK). GenAI client spans and metrics of settled exchanges, over OTLP.

https://github.com/open-telemetry/semantic-conventions-genai, release v0.1.0. Token counts are the
reported ones: input includes cached tokens, output includes reasoning, as the conventions say;
estimates are left out, as the conventions ask. No content is ever sent. If an exporter is down,
only its spans are lost: the SDK's queues are bounded, and its own error lines are throttled.

Backends still read the names of before. `OTEL_SEMCONV_STABILITY_OPT_IN` with `gen_ai/dup` in it
emits both, for one release.

Installed with `tokentee[otel]`.
"""

import logging
import os
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from addon.parts.telemetry.observer import Observed
from ledger.model.exchange import Outcome
from ledger.model.money import PICOUSD_PER_USD
from ledger.store.processes.supervision import ThrottledLog, log_into

logger = logging.getLogger(__name__)

EXPORT_SECONDS_MAX = 5
QUEUE_SPANS_MAX = 2_048
METRIC_PERIOD_MS = 60_000
SDK_MESSAGE_LENGTH_MAX = 300

TOKEN_BUCKETS = tuple(4**power for power in range(14))
"""1, 4, 16 … 67 108 864: the conventions' own boundaries."""
DURATION_BUCKETS = tuple(0.01 * 2**power for power in range(14))
"""10 ms, 20 ms … 81.92 s: the conventions' own boundaries."""

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai/0.1.0"
OPT_IN_VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
BOTH_NAMES = "gen_ai/dup"
INFERENCE = ("chat", "generate_content", "text_completion")
EMBEDDINGS = "embeddings"
"""Operations with metrics of their own name; the duration of the others has the older name."""
PROVIDERS = {"moonshot": "moonshot_ai"}
"""Our names of providers that the conventions have another one for."""
FINISH_OF_A_BROKEN_STREAM = "error"

PARTS = ("cache_read.input_tokens", "cache_write.input_tokens", "reasoning.output_tokens")
BROKEN = (Outcome.UPSTREAM_CUT, Outcome.ERROR_FRAME, Outcome.LOST)

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
        self._has_old_names = BOTH_NAMES in os.environ.get(OPT_IN_VARIABLE, "").split(",")
        self._tracer = self._tracing.get_tracer("tokentee", schema_url=SCHEMA_URL)
        meter = self._metering.get_meter("tokentee", schema_url=SCHEMA_URL)

        def histogram(name: str, unit: str, about: str) -> Histogram:
            return meter.create_histogram(
                f"gen_ai.client.{name}",
                unit=unit,
                description=about,
                explicit_bucket_boundaries_advisory=TOKEN_BUCKETS
                if unit == "{token}"
                else DURATION_BUCKETS,
            )

        self._used = {
            kind: meter.create_counter(
                f"gen_ai.client.inference.usage.{kind}",
                unit="{token}",
                description="Tokens used; input includes cached tokens, output includes reasoning",
            )
            for kind in ("input_tokens", "output_tokens", *PARTS)
        }
        self._of_one = {
            name: histogram(name, "{token}", "Tokens of one operation")
            for name in (
                "inference.operation.input_tokens",
                "inference.operation.output_tokens",
                "embeddings.operation.input_tokens",
            )
        }
        self._inference = histogram("inference.duration", "s", "Inference duration")
        self._embeddings = histogram("embeddings.duration", "s", "Embeddings duration")
        self._duration = histogram("operation.duration", "s", "GenAI operation duration")
        first_chunk = "Time to receive the first chunk of the response"
        self._first_chunk = histogram("inference.time_to_first_chunk", "s", first_chunk)
        self._old_first_chunk = histogram("operation.time_to_first_chunk", "s", first_chunk)
        self._old_tokens = histogram("token.usage", "{token}", "Input and output tokens used")

    def observe(self, one: Observed) -> None:
        """Make a span of an exchange, and record its figures; of one that went upstream."""
        if one.exchange.outcome is Outcome.REFUSED:
            return
        address, port = one.server
        stated = {
            "gen_ai.operation.name": one.exchange.operation,
            "gen_ai.provider.name": PROVIDERS.get(one.exchange.provider, one.exchange.provider),
            "server.address": address,
            "server.port": port,
            "gen_ai.request.model": one.exchange.request_model or None,
            "gen_ai.response.model": one.exchange.response_model or None,
        }
        common: Attributes = {name: value for name, value in stated.items() if value is not None}
        failed: Attributes = {"error.type": one.error_type} if one.error_type else {}
        span = self._tracer.start_span(
            f"{one.exchange.operation} {one.exchange.request_model or one.model}",
            kind=SpanKind.CLIENT,
            attributes={**common, **failed, **_of_span(one, has_old_names=self._has_old_names)},
            start_time=_nanoseconds(one.exchange.opened_at),
        )
        if one.error_type is not None:
            span.set_status(Status(StatusCode.ERROR, str(one.exchange.outcome)))
        span.end(max(_nanoseconds(one.exchange.opened_at), _nanoseconds(one.settled_at)))
        is_embeddings = one.exchange.operation == EMBEDDINGS
        has_name = is_embeddings or one.exchange.operation in INFERENCE
        if has_name:
            duration = self._embeddings if is_embeddings else self._inference
            duration.record(one.seconds, {**common, **failed})
        if not has_name or self._has_old_names:
            self._duration.record(one.seconds, {**common, **failed})
        if one.seconds_to_first_chunk is not None:
            self._first_chunk.record(one.seconds_to_first_chunk, common)
        if one.seconds_to_first_token is not None and self._has_old_names:
            self._old_first_chunk.record(one.seconds_to_first_token, common)
        family = "embeddings" if is_embeddings else "inference"
        for kind, count in _tokens_of(one).items():
            if not is_embeddings:
                self._used[kind].add(count, common)
            if (of_one := self._of_one.get(f"{family}.operation.{kind}")) is not None:
                of_one.record(count, common)
                if self._has_old_names:
                    of_type = {"gen_ai.token.type": kind.removesuffix("_tokens")}
                    self._old_tokens.record(count, {**common, **of_type})

    def close(self, timeout_seconds: float) -> None:
        """Flush, within the timeout."""
        milliseconds = max(1, int(timeout_seconds * 500))
        self._tracing.force_flush(milliseconds)
        self._metering.shutdown(milliseconds)
        self._tracing.shutdown()
        for undo in self._undo:
            undo()


def _tokens_of(one: Observed) -> dict[str, int]:
    """The tokens that were reported, by the conventions' names."""
    if not one.has_usage or one.is_estimated:
        return {}
    usage = one.reading.usage
    counts = (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens)
    named = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    named |= dict(zip(PARTS, counts, strict=True))
    return {name: count for name, count in named.items() if count is not None}


def _of_span(one: Observed, *, has_old_names: bool) -> Attributes:
    exchange, amounts = one.exchange, one.amounts
    finish = exchange.finish_reason
    if exchange.streamed and not finish and exchange.outcome in BROKEN:
        finish = FINISH_OF_A_BROKEN_STREAM
    reported = one.reading.usage.reported_cost_picousd
    attributes: dict[str, str | int | float | list[str] | None] = {
        "tokentee.outcome": str(exchange.outcome),
        "tokentee.billing": one.billing,
        "gen_ai.response.id": exchange.response_id or None,
        "gen_ai.request.stream": exchange.streamed or None,
        "gen_ai.response.finish_reasons": [finish] if finish else None,
        "gen_ai.response.time_to_first_chunk": one.seconds_to_first_chunk,
        "gen_ai.conversation.id": exchange.session_id or None,
        "tokentee.cost_usd": _usd(amounts.cost_picousd),
        "tokentee.list_value_usd": _usd(amounts.list_value_picousd),
    }
    if amounts.cost_picousd is not None:
        # A draft: https://github.com/open-telemetry/semantic-conventions-genai/pull/443
        attributes |= {
            "gen_ai.usage.cost.amount": _usd(amounts.cost_picousd),
            "gen_ai.usage.cost.currency": "USD",
            "gen_ai.usage.cost.source": "provider" if reported == amounts.cost_picousd else "local",
        }
    tokens = _tokens_of(one)
    attributes |= {f"gen_ai.usage.{name}": count for name, count in tokens.items()}
    if tokens:
        attributes["gen_ai.usage.audio.input_tokens"] = one.reading.usage.input_audio_tokens
        attributes["gen_ai.usage.audio.output_tokens"] = one.reading.usage.output_audio_tokens
    if has_old_names:
        written = tokens.get("cache_write.input_tokens")
        attributes["gen_ai.usage.cache_creation.input_tokens"] = written
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
        self._log("warning", f"OpenTelemetry: {record.getMessage()[:SDK_MESSAGE_LENGTH_MAX]}")
