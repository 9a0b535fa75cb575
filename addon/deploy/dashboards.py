"""Pure. Makes Grafana's JSON of a dashboard from panels, which are placed on the grid row by
row."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
