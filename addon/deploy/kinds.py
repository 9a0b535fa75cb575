"""Edge. The kinds of deployment: the files of each, the sources of their text, and writing them.

Grafana's dashboards are made of their panels (`files/*-panels.toml`), which are placed on the grid
row by row.
"""

import json
import os
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ledger.settings.small_files import first_bytes

type Text = Callable[[], str]
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108  # ProtectHome, PrivateTmp
"""Folders that the unit hides from its service."""
GRID_COLUMNS = 24
PANEL_HEIGHT = 8
"""Of Grafana's grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel and its query."""

    title: str
    query: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12


DASHBOARDS: Mapping[str, tuple[str, str]] = {
    "ledger": ("Tokentee: spend", "grafana-postgresql-datasource"),
    "metrics": ("Tokentee: proxies", "prometheus"),
}
"""Dashboard -> its title and the kind of its source: a ledger in PostgreSQL, or the metrics of the
proxies, which Prometheus collects."""


def panels_of(name: str) -> list[Panel]:
    """The panels of a dashboard, in their order."""
    return [Panel(**panel) for panel in tomllib.loads(_file(f"{name}-panels.toml"))["panel"]]


def dashboard(name: str) -> str:
    """Grafana's JSON of a dashboard."""
    title, kind = DASHBOARDS[name]
    source = {"type": kind, "uid": f"tokentee-{name}"}
    placed = []
    left, top = 0, 0
    for number, panel in enumerate(panels_of(name), start=1):
        if left + panel.width > GRID_COLUMNS:
            left, top = 0, top + PANEL_HEIGHT
        target: dict[str, object] = {"expr": panel.query, "legendFormat": "__auto"}
        if name == "ledger":
            form = "table" if panel.kind in ("table", "stat") else "time_series"
            target = {"format": form, "rawQuery": True, "rawSql": panel.query}
        placed.append(
            {
                "id": number,
                "title": panel.title,
                "type": panel.kind,
                "datasource": source,
                "gridPos": {"x": left, "y": top, "w": panel.width, "h": PANEL_HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [{"refId": "A", "datasource": source, **target}],
            }
        )
        left += panel.width
    document = {
        "uid": source["uid"],
        "title": title,
        "tags": ["tokentee"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "panels": placed,
    }
    return json.dumps(document, indent=2) + "\n"


def _version() -> str:
    try:
        return version("tokentee")
    except PackageNotFoundError:
        return "0"


def _wheel() -> str:
    """The file that `uv build` makes of this version."""
    return f"tokentee-{_version()}-py3-none-any.whl"


def _template(name: str) -> Text:
    def text() -> str:
        text = _file(name)
        for placeholder, value in _VALUES.items():
            if placeholder in text:
                text = text.replace(placeholder, value())
        return text

    return text


def _file(name: str) -> str:
    return (Path(__file__).parent / "files" / name).read_text(encoding="utf-8")


def _program() -> str:
    """Where this command lies, if a service may read it there."""
    found = Path(shutil.which("tokentee") or Path(sys.executable).with_name("tokentee")).resolve()
    hidden = any(found.is_relative_to(folder) for folder in HIDDEN)
    return "/usr/local/bin/tokentee" if hidden else str(found)


_VALUES: Mapping[str, Text] = {
    "@WHEEL@": _wheel,
    "@BUDGETS@": lambda: textwrap.indent(_file("budgets.toml").rstrip("\n"), " " * 4),
    "@PROGRAM@": _program,
    "@VERSION@": _version,
}
_GRAFANA: Mapping[str, Text] = {
    "grafana/dashboards/tokentee-postgresql.json": partial(dashboard, "ledger"),
    "grafana/dashboards/tokentee-prometheus.json": partial(dashboard, "metrics"),
    "grafana/provisioning/dashboards/tokentee.yaml": _template("grafana-dashboards.yaml"),
    "grafana/provisioning/datasources/tokentee.yaml": _template("grafana-datasources.yaml"),
}
_PROMETHEUS: Mapping[str, Text] = {
    "prometheus/prometheus.yml": _template("prometheus.yml"),
    "prometheus/tokentee-rules.yml": _template("tokentee-rules.yml"),
}
_SETTINGS: Mapping[str, Text] = {
    "tokentee.toml": _template("tokentee.toml"),
    "budgets.toml": _template("budgets.toml"),
}
_DOCKER: Mapping[str, Text] = {
    "Dockerfile": _template("Dockerfile"),
    ".dockerignore": _template("dockerignore"),
    **_SETTINGS,
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
    "systemd": {"tokentee.service": _template("tokentee.service"), **_SETTINGS},
    "kubernetes": {"tokentee.yaml": _template("kubernetes.yaml")},
    "grafana": _GRAFANA,
    "prometheus": _PROMETHEUS,
}
"""Kind -> path below the folder -> function that returns the text."""

NEXT_STEPS: Mapping[str, str] = {
    "docker": """\
uv build --wheel --out-dir "$PWD" CLONE    # makes @WHEEL@; --wheel FILE copies one
tokentee config check tokentee.toml
docker build -t tokentee .
docker run --read-only --tmpfs /tmp -v tokentee:/var/lib/tokentee \\
    -p 127.0.0.1:8001:8001 -p 127.0.0.1:8002:8002 -p 127.0.0.1:9464:9464 tokentee
curl http://127.0.0.1:9464/readyz
# Clients use http://127.0.0.1:8001/v1 (OpenAI) or http://127.0.0.1:8002 (Anthropic) as base URL.
""",
    "compose": """\
uv build --wheel --out-dir "$PWD" CLONE    # makes @WHEEL@; --wheel FILE copies one
cp env.example .env    # and set both passwords in it
tokentee config check tokentee.toml
docker compose up --build --detach
docker compose ps
# Clients use http://127.0.0.1:8001/v1 (OpenAI) or http://127.0.0.1:8002 (Anthropic) as base URL;
# Grafana is at http://127.0.0.1:3000.
""",
    "systemd": """\
test -x @PROGRAM@ || {    # a Python 3.12 or later that is not in a home; CLONE or a wheel of it
  sudo python3 -m venv /opt/tokentee
  sudo /opt/tokentee/bin/pip install 'CLONE[postgresql,otel]'
  sudo ln -s /opt/tokentee/bin/tokentee @PROGRAM@
}
tokentee config check tokentee.toml
sudo install -D --mode 644 --target-directory /etc/tokentee tokentee.toml budgets.toml
sudo install --mode 644 tokentee.service /etc/systemd/system/
sudo systemctl daemon-reload && sudo systemctl enable --now tokentee
""",
    "kubernetes": """\
tokentee deploy docker --to image    # build and push it, and name it in tokentee.yaml
kubectl create secret generic tokentee \\
    --from-literal=ledger_url='postgresql+psycopg://USER:PASSWORD@HOST/tokentee'
kubectl apply -f tokentee.yaml
kubectl rollout status statefulset/tokentee
""",
    "grafana": """\
sudo cp -r grafana/provisioning/. /etc/grafana/provisioning/
sudo install -D --target-directory /var/lib/grafana/dashboards grafana/dashboards/*
sudo systemctl restart grafana-server    # with POSTGRES_PASSWORD in its environment
""",
    "prometheus": """\
promtool check config prometheus/prometheus.yml
prometheus --config.file=prometheus/prometheus.yml
""",
}
"""Kind -> the commands that come next, in the folder of the files."""


def next_steps(kind: str) -> str:
    """The commands that come next, for this installation."""
    return NEXT_STEPS[kind].replace("@PROGRAM@", _program()).replace("@WHEEL@", _wheel())


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of a deployment."""

    path: Path
    is_new: bool
    """False: the same file existed already."""


class Occupied(Exception):  # noqa: N818  # it lists files, and the command words the error
    """Existing files have other content."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        super().__init__(", ".join(map(str, self.paths)))


def write(
    kind: str, folder: Path, *, force: bool = False, wheel: Path | None = None
) -> list[Written]:
    """Write the files of a kind into a folder.

    An existing file with the same content is left alone. One with other content raises `Occupied`,
    before anything is written, unless `force` is set. `wheel` is copied beside the Dockerfile,
    which installs it. Raises OSError.
    """
    texts = {folder / name: text() for name, text in KINDS[kind].items()}
    if wheel is not None:
        dockerfile = folder / "Dockerfile"
        texts[dockerfile] = texts[dockerfile].replace(_wheel(), wheel.name)
    there = set[Path]()
    for path in (path for path in texts if path.exists()):
        ours = texts[path].encode()
        try:
            # No more of the file is read than the comparison takes.
            if first_bytes(path, len(ours) + 1) != ours:
                there.add(path)
        except OSError:
            there.add(path)
    if there and not force:
        raise Occupied(sorted(there))
    written = []
    for path, text in texts.items():
        is_new = not path.exists() or path in there
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_text(text, encoding="utf-8")
                beside.replace(path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
        written.append(Written(path=path, is_new=is_new))
    if wheel is not None and wheel.parent.resolve() != folder.resolve():
        shutil.copyfile(wheel, folder / wheel.name)
        written.append(Written(path=folder / wheel.name, is_new=True))
    return written
