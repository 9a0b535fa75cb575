"""Edge. The kinds of deployment: the files of each, and the sources of their text."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from addon.deploy import ledger_dashboard, metrics_dashboard

type Text = Callable[[], str]


def _version() -> str:
    try:
        return version("tokentee")
    except PackageNotFoundError:
        return "0"


def _template(name: str) -> Text:
    def text() -> str:
        source = Path(__file__).parent / "files" / name
        return source.read_text(encoding="utf-8").replace("@VERSION@", _version())

    return text


_GRAFANA: Mapping[str, Text] = {
    "grafana/dashboards/tokentee-postgresql.json": ledger_dashboard.text,
    "grafana/dashboards/tokentee-prometheus.json": metrics_dashboard.text,
    "grafana/provisioning/dashboards/tokentee.yaml": _template("grafana-dashboards.yaml"),
    "grafana/provisioning/datasources/tokentee.yaml": _template("grafana-datasources.yaml"),
}
_PROMETHEUS: Mapping[str, Text] = {
    "prometheus/prometheus.yml": _template("prometheus.yml"),
    "prometheus/tokentee-rules.yml": _template("tokentee-rules.yml"),
}
_DOCKER: Mapping[str, Text] = {
    "Dockerfile": _template("Dockerfile"),
    ".dockerignore": _template("dockerignore"),
    "tokentee.toml": _template("tokentee.toml"),
}
KINDS: Mapping[str, Mapping[str, Text]] = {
    "docker": _DOCKER,
    "compose": {
        **_DOCKER,
        **_PROMETHEUS,
        **_GRAFANA,
        "compose.yaml": _template("compose.yaml"),
        "env.example": _template("env.example"),
        "haproxy/haproxy.cfg": _template("haproxy.cfg"),
        "pgbouncer/pgbouncer.ini": _template("pgbouncer.ini"),
    },
    "systemd": {
        "tokentee.service": _template("tokentee.service"),
        "tokentee.toml": _template("tokentee.toml"),
    },
    "kubernetes": {"tokentee.yaml": _template("kubernetes.yaml")},
    "grafana": _GRAFANA,
    "prometheus": _PROMETHEUS,
}
"""Kind -> path below the folder -> function that returns the text."""
