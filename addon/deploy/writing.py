"""Edge. Which files each kind of deployment has, and writing them."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from addon.deploy import grafana

type Text = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of a deployment."""

    path: Path
    is_new: bool
    """False: the same file was there already."""


class Occupied(Exception):  # noqa: N818  # it lists files, and the command words the error
    """Files of other content are in the way."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        super().__init__(", ".join(map(str, self.paths)))


def _template(name: str) -> Text:
    def text() -> str:
        source = Path(__file__).parent / "files" / name
        return source.read_text(encoding="utf-8").replace("@VERSION@", _version())

    return text


_GRAFANA: Mapping[str, Text] = {
    "grafana/dashboards/tokentee-postgresql.json": grafana.postgresql,
    "grafana/dashboards/tokentee-prometheus.json": grafana.prometheus,
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
"""Kind -> path below the folder -> where its text comes from."""


def write(kind: str, folder: Path, *, force: bool = False) -> list[Written]:
    """Write the files of a kind into a folder.

    A file that is there with the same content is left alone. One with other content raises
    `Occupied`, before anything is written, unless `force`. Raises OSError.
    """
    texts = {folder / name: text() for name, text in KINDS[kind].items()}
    there = {path for path, text in texts.items() if path.exists() and _differs(path, text)}
    if there and not force:
        raise Occupied(sorted(there))
    written = []
    for path, text in texts.items():
        is_new = not path.exists() or path in there
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        written.append(Written(path=path, is_new=is_new))
    return written


def _differs(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") != text
    except (OSError, UnicodeDecodeError):
        return True


def _version() -> str:
    try:
        return version("tokentee")
    except PackageNotFoundError:
        return "0"
