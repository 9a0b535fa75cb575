"""Pure. The Grafana dashboard over the metrics of the proxies, which Prometheus collects."""

from typing import Any

from addon.deploy.dashboards import Panel, dashboard

PANELS = (
    Panel(title="Ready", kind="stat", width=4, query="min(tokentee_ready)"),
    Panel(
        title="Cost, last 24 hours",
        kind="stat",
        unit="currencyUSD",
        width=5,
        query="sum(increase(tokentee_cost_usd_total[24h]))",
    ),
    Panel(
        title="Covered by plans or free, at list prices, last 24 hours",
        kind="stat",
        unit="currencyUSD",
        width=5,
        query='sum(increase(tokentee_list_value_usd_total{billing=~"plan|free"}[24h]))',
    ),
    Panel(
        title="Unpriced or without usage, last 24 hours",
        kind="stat",
        width=5,
        query="(sum(increase(tokentee_unpriced_total[24h])) or vector(0)) "
        "+ (sum(increase(tokentee_without_usage_total[24h])) or vector(0))",
    ),
    Panel(title="Dropped", kind="stat", width=5, query="sum(tokentee_dropped_total)"),
    Panel(
        title="Requests a second by outcome",
        unit="reqps",
        query="sum by (outcome) (rate(tokentee_requests_total[5m]))",
    ),
    Panel(title="Tokens a second by type", query="sum by (type) (rate(tokentee_tokens_total[5m]))"),
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
    Panel(title="Open exchanges", query="sum by (instance) (tokentee_open_exchanges)"),
    Panel(title="Rows that wait for the writer", query="sum by (instance) (tokentee_queued_rows)"),
    Panel(title="Free disk", unit="bytes", query="min by (instance) (tokentee_disk_free_bytes)"),
)


def text() -> str:
    """The dashboard as Grafana's JSON."""
    source = {"type": "prometheus", "uid": "tokentee-metrics"}
    return dashboard("tokentee-metrics", "Tokentee: proxies", source, PANELS, _target)


def _target(panel: Panel) -> dict[str, Any]:
    return {"expr": panel.query, "legendFormat": "__auto"}
