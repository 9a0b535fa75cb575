"""Edge (prometheus-client). Counters and gauges of one recording process, or of several workers.

Label sets are bounded: providers and models come from the wire, so each has a maximum, and further
names count under `other`. Cost is in USD as Prometheus wants base units; a counter is a float
there, so it is for watching, and the ledger's integers are for billing.

Several workers use prometheus-client's multiprocess mode
(https://prometheus.github.io/client_python/multiprocess/). Each worker counts in memory-mapped
files of its own, and a scrape adds up all files of the folder. A killed worker's counts stay in its
files.

The library names the files by process id. Here they are named by the worker's index: a number that
one living process has at a time, and that the next one takes over together with the files. So the
folder does not grow with every restart. In this mode the library cannot read gauges at a scrape;
the health of the workers provides them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from addon.parts.telemetry.observer import Observed
from addon.proxy.health import Health, MetricFiles, problems
from ledger.model.exchange import PPM, Outcome
from ledger.model.money import PICOUSD_PER_USD

MODEL_LABELS_MAX = 200
PROVIDERS_MAX = 50
LIMIT_LABELS_MAX = 200
CAPS_MAX = 200
"""Distinct label values; an upstream can invent names without end."""
LABEL_LENGTH_MAX = 100
OTHER = "other"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
"""Buckets for durations: a cached answer takes 50 ms, a long reasoning stream minutes."""

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """A sink of observations; `registry` is read at a scrape."""

    def __init__(
        self,
        health: Callable[[], Health],
        *,
        dropped_observations: Callable[[], int] = lambda: 0,
        known: Mapping[str, set[str]] | None = None,
    ) -> None:
        """`known`: label values that are in use already, by the label's name."""
        self.registry = CollectorRegistry()
        self._in_use = {"provider": set[str](), "model": set[str](), "limit": set[str]()}
        self._in_use["cap"] = set()
        self._in_use |= known or {}
        by_model = ("provider", "model")
        self._requests = self._counter("requests", "Exchanges settled", (*by_model, "outcome"))
        self._tokens = self._counter(
            "tokens",
            "Tokens that providers reported; each is of one type, so that they add up",
            (*by_model, "type"),
        )
        self._cost = self._counter("cost_usd", "Cost of priced lines, USD", by_model)
        self._list_value = self._counter(
            "list_value_usd",
            "Reported tokens at list prices, USD; never to be added to the cost",
            (*by_model, "billing"),
        )
        self._unpriced = self._counter(
            "requests_unpriced", "Exchanges billed by tokens with a line without price", by_model
        )
        self._without_usage = self._counter(
            "requests_without_usage", "Exchanges without usage, errors left out", by_model
        )
        self._estimated = self._counter(
            "requests_estimated",
            "Exchanges whose usage is an estimate: in no other counter of tokens or cost",
            by_model,
        )
        self._degraded = self._counter(
            "requests_degraded", "Exchanges that were passed on partly unread", ("provider",)
        )
        of_limit = ("provider", "holder", "kind", "window")
        self._used = self._gauge("limit_used_ratio", "Used share of a limit, as stated", of_limit)
        self._resets = self._gauge(
            "limit_resets_timestamp_seconds", "When a limit resets, as stated", of_limit
        )
        self._refused = self._counter(
            "refused", "Requests that a cap refused: in no other counter", ("cap",)
        )
        self._duration = self._histogram("duration_seconds", "Request to settling")
        self._first_token = self._histogram("time_to_first_token_seconds", "Request to first token")
        self.registry.register(HealthCollector(health, dropped_observations))

    def observe(self, one: Observed) -> None:
        """Count one exchange."""
        exchange, usage, amounts = one.exchange, one.reading.usage, one.amounts
        if exchange.outcome is Outcome.REFUSED:
            cap = _bounded(exchange.error_code or "", self._in_use["cap"], CAPS_MAX)
            self._refused.labels(cap).inc()
            return
        provider = _bounded(exchange.provider, self._in_use["provider"], PROVIDERS_MAX)
        model = _bounded(one.model, self._in_use["model"], MODEL_LABELS_MAX)
        self._requests.labels(provider, model, str(exchange.outcome)).inc()
        self._duration.labels(provider).observe(one.seconds)
        if one.seconds_to_first_token is not None:
            self._first_token.labels(provider).observe(one.seconds_to_first_token)
        if exchange.degraded is not None:
            self._degraded.labels(provider).inc()
        if one.is_without_usage:
            self._without_usage.labels(provider, model).inc()
        if one.is_estimated:
            self._estimated.labels(provider, model).inc()
        elif one.has_usage:
            cached = {
                "cache_read": usage.cache_read_tokens,
                "cache_write": usage.cache_write_tokens,
            }
            thought = {"reasoning": usage.reasoning_tokens}
            for total, rest, parts in (
                (usage.input_tokens, "uncached_input", cached),
                (usage.output_tokens, "output_visible", thought),
            ):
                known = {kind: count for kind, count in parts.items() if count is not None}
                if total is not None:
                    known[rest] = max(0, total - sum(known.values()))
                for kind, count in known.items():
                    self._tokens.labels(provider, model, kind).inc(count)
            if amounts.cost_picousd is not None:
                self._cost.labels(provider, model).inc(amounts.cost_picousd / PICOUSD_PER_USD)
            if amounts.list_value_picousd is not None:
                value = amounts.list_value_picousd / PICOUSD_PER_USD
                self._list_value.labels(provider, model, one.billing).inc(value)
        if one.is_unpriced:
            self._unpriced.labels(provider, model).inc()
        limits = self._in_use["limit"]
        for quota in exchange.quotas:
            labels = (provider, one.holder, quota.kind.value, quota.window)
            key = " ".join(labels)
            if quota.used_ppm is None or (key not in limits and len(limits) >= LIMIT_LABELS_MAX):
                continue
            limits.add(key)
            self._used.labels(*labels).set(quota.used_ppm / PPM)
            if quota.resets_at is not None:
                self._resets.labels(*labels).set(quota.resets_at.timestamp())

    def close(self, timeout_seconds: float) -> None:
        """Nothing to flush: a scrape reads the current values."""

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, namespace="tokentee", registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(
            name,
            text,
            labels,
            namespace="tokentee",
            registry=self.registry,
            multiprocess_mode="mostrecent",
        )

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            name,
            text,
            ("provider",),
            namespace="tokentee",
            registry=self.registry,
            buckets=SECONDS,
        )


class HealthCollector(Collector):
    """Gauges that are read at each scrape."""

    def __init__(self, health: Callable[[], Health], dropped: Callable[[], int]) -> None:
        self._health = health
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """All gauges with their current values."""
        health = self._health()
        # The price list of the package has a version, and states no date.
        packages = ("tokentee", "genai-prices")
        build = GaugeMetricFamily(
            "tokentee_build_info", "1, by version", labels=["version", "genai_prices"]
        )
        build.add_metric([version(name) for name in packages], 1.0)
        yield build
        yield _gauge("ready", "1: recording; 0: see /readyz", float(not problems(health)))
        yield _gauge("writer_alive", "1: the writer thread runs", float(health.writer_alive))
        yield _gauge("queued_rows", "Rows that wait for the writer", health.queued_rows)
        yield _gauge("open_exchanges", "Exchanges under way", health.open_exchanges)
        yield _count("exchanges_dropped", "Exchanges that could not be recorded", health.dropped)
        yield _count("observations_dropped", "Observations not counted here", self._dropped())
        optional = (
            ("shipper_alive", "1: the shipper thread runs", health.shipper_alive),
            (
                "shipping_waiting",
                "Exchanges that wait for the shared ledger",
                health.waiting_to_ship,
            ),
            (
                "shipping_lag_seconds",
                "Age of the oldest exchange that waits for the shared ledger",
                health.oldest_waiting_seconds,
            ),
            ("ledger_bytes", "Size of the ledger's or spool's file", health.ledger_bytes),
            ("wal_bytes", "Size of its write-ahead log", health.wal_bytes),
            ("disk_free_bytes", "Free bytes on its disk", health.disk_free_bytes),
            ("captures_dropped", "Captures that could not be written", health.captures_dropped),
            ("workers", "Workers that run", health.workers),
        )
        for name, text, value in optional:
            if value is not None:
                yield _gauge(name, text, float(value))
        if health.cap_shares:
            shares = GaugeMetricFamily(
                "tokentee_cap_spent_ratio",
                "Spent share of a cap, of its tightest limit and fullest account",
                labels=("cap",),
            )
            for name, share in health.cap_shares:
                shares.add_metric((name,), share)
            yield shares
        if health.worker_restarts is not None:
            text = "Workers that were started again after an unexpected end"
            yield _count("worker_restarts", text, health.worker_restarts)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tokentee_{name}", text, value=value)


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"tokentee_{name}", text, value=value)


def _bounded(name: str, known: set[str], count_max: int) -> str:
    """The name as a label, or `other` when there are too many."""
    label = "".join(char if char.isprintable() else "?" for char in name[:LABEL_LENGTH_MAX])
    if label not in known:
        if len(known) >= count_max:
            return OTHER
        known.add(label)
    return label


def metrics_of_worker(
    files: MetricFiles, health: Callable[[], Health], *, dropped_observations: Callable[[], int]
) -> Metrics:
    """The metrics of this process, which continue from the values in the files: their labels count
    towards the maximum, too."""
    os.environ[FOLDER_VARIABLE] = str(files.folder)
    values.ValueClass = values.MultiProcessValue(  # type: ignore[no-untyped-call]  # no annotations
        process_identifier=lambda: files.index
    )
    paths = [str(path) for path in files.folder.glob(f"*_{files.index}.db")]
    known: dict[str, set[str]] = {}
    for metric in MultiProcessCollector.merge(paths):  # type: ignore[no-untyped-call]
        for sample in metric.samples:
            for name, value in sample.labels.items():
                known.setdefault(name, set()).add(value)
    return Metrics(health, dropped_observations=dropped_observations, known=known)


def metrics_of_workers(
    folder: Path, health: Callable[[], Health], *, dropped_observations: Callable[[], int]
) -> CollectorRegistry:
    """The metrics of all workers."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    registry.register(HealthCollector(health, dropped_observations))
    return registry
