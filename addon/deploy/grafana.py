"""Pure. Grafana dashboards: over the ledger in PostgreSQL, and over Prometheus.

A dashboard is a table of panels; Grafana's JSON is made of it. Queries over PostgreSQL read the
public views alone.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
"""Grafana's grid."""
HEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: what it shows, and the question behind it."""

    title: str
    query: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12


POSTGRESQL_PANELS = (
    Panel(
        title="Cost",
        kind="stat",
        unit="currencyUSD",
        width=6,
        query="SELECT sum(cost_usd) AS cost FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Requests",
        kind="stat",
        width=6,
        query="SELECT count(*) AS requests FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Without usage, unpriced, lost",
        kind="stat",
        width=6,
        query="SELECT count(*) FILTER (WHERE coalesce(usage_source, 'none') = 'none') "
        "AS without_usage, count(*) FILTER (WHERE cost_state IN ('unpriced', 'partial')) "
        "AS unpriced, count(*) FILTER (WHERE state = 'lost') AS lost "
        "FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Input served from cache",
        kind="stat",
        unit="percentunit",
        width=6,
        query="SELECT sum(cache_read_tokens)::float / nullif(sum(input_tokens), 0) AS hit_rate "
        "FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Cost by model",
        unit="currencyUSD",
        width=24,
        query="SELECT date_trunc('hour', opened_at) AS time, coalesce(model, 'unknown') AS metric, "
        "sum(cost_usd) AS cost FROM requests WHERE $__timeFilter(opened_at) "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    Panel(
        title="Tokens",
        query="SELECT date_trunc('hour', opened_at) AS time, sum(uncached_input_tokens) "
        "AS uncached_input, sum(cache_read_tokens) AS cache_read, sum(output_tokens) AS output "
        "FROM requests WHERE $__timeFilter(opened_at) GROUP BY 1 ORDER BY 1",
    ),
    Panel(
        title="Cost by API key",
        unit="currencyUSD",
        query="SELECT date_trunc('hour', opened_at) AS time, "
        "coalesce('…' || key_hint, left(key_fingerprint, 8), 'no key') AS metric, "
        "sum(cost_usd) AS cost FROM requests WHERE $__timeFilter(opened_at) "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    Panel(
        title="Errors by outcome",
        query="SELECT date_trunc('hour', opened_at) AS time, outcome AS metric, count(*) AS n "
        "FROM requests WHERE $__timeFilter(opened_at) AND outcome <> 'complete' "
        "GROUP BY 1, 2 ORDER BY 1",
    ),
    Panel(
        title="Time to first token, p50 and p95",
        unit="ms",
        query="SELECT date_trunc('hour', opened_at) AS time, "
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY first_token_ms) AS p50, "
        "percentile_cont(0.95) WITHIN GROUP (ORDER BY first_token_ms) AS p95 "
        "FROM requests WHERE $__timeFilter(opened_at) AND first_token_ms IS NOT NULL "
        "GROUP BY 1 ORDER BY 1",
    ),
    Panel(
        title="Most expensive sessions",
        kind="table",
        unit="short",
        width=24,
        query="SELECT session_id, count(*) AS requests, sum(input_tokens) AS input, "
        "sum(output_tokens) AS output, sum(cost_usd) AS cost_usd FROM requests "
        "WHERE $__timeFilter(opened_at) AND session_id IS NOT NULL "
        "GROUP BY 1 ORDER BY cost_usd DESC NULLS LAST LIMIT 20",
    ),
)
PROMETHEUS_PANELS = (
    Panel(title="Ready", kind="stat", width=6, query="min(tokentee_ready)"),
    Panel(
        title="Cost, last 24 hours",
        kind="stat",
        unit="currencyUSD",
        width=6,
        query="sum(increase(tokentee_cost_usd_total[24h]))",
    ),
    Panel(
        title="Unpriced or without usage, last 24 hours",
        kind="stat",
        width=6,
        query="(sum(increase(tokentee_unpriced_total[24h])) or vector(0)) "
        "+ (sum(increase(tokentee_without_usage_total[24h])) or vector(0))",
    ),
    Panel(
        title="Dropped",
        kind="stat",
        width=6,
        query="sum(tokentee_dropped_total)",
    ),
    Panel(
        title="Requests a second by outcome",
        unit="reqps",
        query="sum by (outcome) (rate(tokentee_requests_total[5m]))",
    ),
    Panel(
        title="Tokens a second by type",
        query="sum by (type) (rate(tokentee_tokens_total[5m]))",
    ),
    Panel(
        title="Cost an hour by model",
        unit="currencyUSD",
        query="sum by (model) (rate(tokentee_cost_usd_total[15m])) * 3600",
    ),
    Panel(
        title="Time to first token, p95",
        unit="s",
        query="histogram_quantile(0.95, sum by (le, provider) "
        "(rate(tokentee_time_to_first_token_seconds_bucket[5m])))",
    ),
    Panel(
        title="Duration, p95",
        unit="s",
        query="histogram_quantile(0.95, sum by (le, provider) "
        "(rate(tokentee_duration_seconds_bucket[5m])))",
    ),
    Panel(
        title="Age of the oldest exchange that waits to be shipped",
        unit="s",
        query="max by (instance) (tokentee_shipping_lag_seconds)",
    ),
    Panel(
        title="Open exchanges",
        query="sum by (instance) (tokentee_open_exchanges)",
    ),
    Panel(
        title="Rows that wait for the writer",
        query="sum by (instance) (tokentee_queued_rows)",
    ),
    Panel(
        title="Free disk",
        unit="bytes",
        query="min by (instance) (tokentee_disk_free_bytes)",
    ),
)


type Target = Callable[[Panel], dict[str, Any]]


def postgresql() -> str:
    """The dashboard over the ledger's views, as Grafana's JSON."""
    source = {"type": "grafana-postgresql-datasource", "uid": "tokentee-ledger"}
    return _dashboard("tokentee-ledger", "Tokentee: spend", source, POSTGRESQL_PANELS, _sql_target)


def prometheus() -> str:
    """The dashboard over the proxies' metrics, as Grafana's JSON."""
    source = {"type": "prometheus", "uid": "tokentee-metrics"}
    return _dashboard(
        "tokentee-metrics", "Tokentee: proxies", source, PROMETHEUS_PANELS, _prometheus_target
    )


def _sql_target(panel: Panel) -> dict[str, Any]:
    return {
        "format": "table" if panel.kind in ("table", "stat") else "time_series",
        "rawQuery": True,
        "rawSql": panel.query,
    }


def _prometheus_target(panel: Panel) -> dict[str, Any]:
    return {"expr": panel.query, "legendFormat": "__auto"}


def _dashboard(
    uid: str, title: str, source: dict[str, str], panels: Sequence[Panel], target_of: Target
) -> str:
    placed = []
    left, top = 0, 0
    for number, panel in enumerate(panels, start=1):
        if left + panel.width > WIDTH:
            left, top = 0, top + HEIGHT
        placed.append(
            {
                "id": number,
                "title": panel.title,
                "type": panel.kind,
                "datasource": source,
                "gridPos": {"x": left, "y": top, "w": panel.width, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [{"refId": "A", "datasource": source, **target_of(panel)}],
            }
        )
        left += panel.width
    document = {
        "uid": uid,
        "title": title,
        "tags": ["tokentee"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "panels": placed,
    }
    return json.dumps(document, indent=2) + "\n"
