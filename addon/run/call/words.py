"""Pure. Converts settings to words for the proxy's command line, with the source of each value."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from addon.run.call.settings import Settings

ENVIRONMENT: Mapping[str, str] = {"ledger_url": "TOKENTEE_LEDGER", "tee_prices": "TOKENTEE_PRICES"}
"""Option -> the environment variable that overrides the config file."""
WORKERS_VARIABLE = "TOKENTEE_WORKERS"
FILES: Mapping[str, str] = {"names": "TOKENTEE_NAMES", "budgets": "TOKENTEE_BUDGETS"}
"""Key of a settings file -> the environment variable that overrides it."""
FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the recorder, with its value in force."""

    name: str
    value: str
    source: str
    """`file` or the environment variable."""


def options_of(
    settings: Settings, *, ledger_url: str | None, folder: Path, environment: Mapping[str, str]
) -> list[Option]:
    """The recorder's options. `folder`: the config file's folder, for the files that it names."""
    values: dict[str, str | None] = {
        "ledger_url": ledger_url,
        "ledger_commit": settings.commit,
        "tee_inject": settings.inject,
        "tee_hosts": ",".join([*settings.hosts, *_named_hosts(settings)]),
        "tee_capture": _path(folder, settings.capture),
        "tee_prices": _path(folder, settings.prices),
        "tee_tags": ",".join(f"{key}={value}" for key, value in settings.tags.items()),
        "tee_client_tags": settings.client_tags,
        "tee_log": settings.log,
        "tee_log_format": settings.log_format,
        "tee_metrics": settings.metrics.listen if settings.metrics else None,
        "tee_otlp": settings.otlp.endpoint if settings.otlp else None,
    }
    found = []
    for name, value in values.items():
        variable = ENVIRONMENT.get(name)
        if variable is not None and environment.get(variable):
            found.append(Option(name=name, value=environment[variable], source=variable))
        elif value:
            found.append(Option(name=name, value=value, source=FILE))
    return found


def files_of(settings: Settings, *, folder: Path, environment: Mapping[str, str]) -> list[Option]:
    """The names and budgets files in force."""
    found = []
    for key, variable in FILES.items():
        if environment.get(variable):
            found.append(Option(name=key, value=environment[variable], source=variable))
        elif (path := _path(folder, getattr(settings, key))) is not None:
            found.append(Option(name=key, value=path, source=FILE))
    return found


def workers_of(settings: Settings, environment: Mapping[str, str]) -> Option | None:
    """The number of workers in force, if set."""
    if named := environment.get(WORKERS_VARIABLE):
        return Option(name="workers", value=named, source=WORKERS_VARIABLE)
    if settings.workers is None:
        return None
    return Option(name="workers", value=str(settings.workers), source=FILE)


def modes_of(settings: Settings) -> list[str]:
    """mitmproxy's modes: a reverse proxy for each upstream, and a regular one if requested."""
    modes = [f"reverse:{upstream.url}@{upstream.listen}" for upstream in settings.upstream]
    if settings.listen is not None:
        modes.append(f"regular@{settings.listen}")
    return modes


def words_of(
    options: list[Option], modes: list[str], *, given: Container[str], has_modes: bool
) -> list[str]:
    """Words for mitmproxy's parser. `given`: options that the command line sets, which override the
    file; `has_modes`: the command line names modes, so the file's modes are left out."""
    words = []
    for option in options:
        if option.name not in given:
            words += ["--set", f"{option.name}={option.value}"]
    if not has_modes:
        for mode in modes:
            words += ["--mode", mode]
    return words


def _named_hosts(settings: Settings) -> list[str]:
    """Upstreams whose provider the file names, in the format of `tee_hosts`."""
    found = []
    for upstream in settings.upstream:
        if upstream.provider is not None:
            parts = urlsplit(upstream.url)
            port = f":{parts.port}" if parts.port else ""
            found.append(f"{parts.hostname}{port}={upstream.provider}")
    return found


def _path(folder: Path, named: str | None) -> str | None:
    return None if named is None else str(folder / Path(named).expanduser())
