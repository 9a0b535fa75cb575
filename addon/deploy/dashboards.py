"""Edge (files of the package). Grafana's JSON of the dashboards, from their panels
(`files/*-panels.toml`), which are placed on the grid row by row."""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel and its query."""

    title: str
    query: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12


type Target = Callable[[Panel], dict[str, Any]]


def dashboard(
    uid: str, title: str, source: dict[str, str], panels: Sequence[Panel], target_of: Target
) -> str:
    """Grafana's JSON of a dashboard. `target_of` converts a panel's query for its data source."""
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


def panels_of(name: str) -> list[Panel]:
    """The panels of the dashboard `ledger` or `metrics`, in their order."""
    text = (Path(__file__).parent / "files" / f"{name}-panels.toml").read_text(encoding="utf-8")
    return [Panel(**panel) for panel in tomllib.loads(text)["panel"]]


def ledger() -> str:
    """The dashboard over a ledger in PostgreSQL."""
    source = {"type": "grafana-postgresql-datasource", "uid": "tokentee-ledger"}
    panels = panels_of("ledger")
    return dashboard("tokentee-ledger", "Tokentee: spend", source, panels, _of_postgresql)


def metrics() -> str:
    """The dashboard over the metrics of the proxies, which Prometheus collects."""
    source = {"type": "prometheus", "uid": "tokentee-metrics"}
    panels = panels_of("metrics")
    return dashboard("tokentee-metrics", "Tokentee: proxies", source, panels, _of_prometheus)


def _of_postgresql(panel: Panel) -> dict[str, Any]:
    return {
        "format": "table" if panel.kind in ("table", "stat") else "time_series",
        "rawQuery": True,
        "rawSql": panel.query,
    }


def _of_prometheus(panel: Panel) -> dict[str, Any]:
    return {"expr": panel.query, "legendFormat": "__auto"}
