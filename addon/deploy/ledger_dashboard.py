"""Pure. The Grafana dashboard over a ledger in PostgreSQL. Its queries read only public views."""

from typing import Any

from addon.deploy.dashboards import Panel, dashboard

PANELS = (
    Panel(
        title="Cost",
        kind="stat",
        unit="currencyUSD",
        width=4,
        query="SELECT sum(cost_usd) AS cost FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Covered by plans or free, at list prices",
        kind="stat",
        unit="currencyUSD",
        width=5,
        query="SELECT sum(list_value_usd) AS list_value FROM requests "
        "WHERE $__timeFilter(opened_at) AND billing IN ('plan', 'free')",
    ),
    Panel(
        title="Requests",
        kind="stat",
        width=5,
        query="SELECT count(*) AS requests FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Without usage, unpriced, lost",
        kind="stat",
        width=5,
        query="SELECT count(*) FILTER (WHERE coalesce(usage_source, 'none') = 'none' "
        "AND outcome NOT IN ('error_frame', 'http_error')) AS without_usage, "
        "count(*) FILTER (WHERE cost_state IN ('unpriced', 'partial') "
        "AND usage_source <> 'estimated' AND billing NOT IN ('plan', 'free')) AS unpriced, "
        "count(*) FILTER (WHERE state = 'lost') AS lost "
        "FROM requests WHERE $__timeFilter(opened_at)",
    ),
    Panel(
        title="Input served from cache",
        kind="stat",
        unit="percentunit",
        width=5,
        query="SELECT sum(cache_read_tokens)::float / nullif(sum(input_tokens) "
        "FILTER (WHERE cache_read_tokens IS NOT NULL), 0) AS hit_rate "
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


def text() -> str:
    """The dashboard as Grafana's JSON."""
    source = {"type": "grafana-postgresql-datasource", "uid": "tokentee-ledger"}
    return dashboard("tokentee-ledger", "Tokentee: spend", source, PANELS, _target)


def _target(panel: Panel) -> dict[str, Any]:
    return {
        "format": "table" if panel.kind in ("table", "stat") else "time_series",
        "rawQuery": True,
        "rawSql": panel.query,
    }
