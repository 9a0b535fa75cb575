"""Edge. The config file of `run`: found, read, checked with the line of every mistake, and made the
options of a call.

It is read where it is named, or from the user's or the system's settings folder. What lies in the
current folder is not read: whoever wrote the folder wrote it.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from addon.run.call.arguments import WORKERS_MAX, Call, set_options, workers_of
from ledger.model.errors import LedgerError
from ledger.settings.small_files import SYSTEM_FOLDER, config_directory, expanded, read_text
from ledger.settings.toml_tables import (
    FaultError,
    TomlProblem,
    converted,
    fault_of,
    line_in_table,
    line_of_key,
    parse,
    unknown_tables,
)
from ledger.text.origins import listen_address
from ledger.text.printable import without_credentials

NAME = "tokentee.toml"
VARIABLES: Mapping[str, str] = {
    "ledger_url": "TOKENTEE_LEDGER",
    "tee_prices": "TOKENTEE_PRICES",
    "names": "TOKENTEE_NAMES",
    "budgets": "TOKENTEE_BUDGETS",
    "workers": "TOKENTEE_WORKERS",
}
"""Option -> the environment variable that overrides the config file."""
PROBLEMS_SHOWN_MAX = 10
UPSTREAMS_MAX = 100
"""Listeners of one process; each is a socket and a mode of mitmproxy."""


class UpstreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One upstream, and the address at which clients reach it."""

    name: str = ""
    """For messages about the file."""
    url: str
    """scheme://host[:port]; a reverse proxy's target has no path."""
    listen: str
    """HOST:PORT."""
    provider: str | None = None
    """The provider, if the host does not identify it."""


class MetricsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The address of `/healthz`, `/readyz` and `/metrics`."""

    listen: str


class OtlpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The destination of OpenTelemetry spans and metrics."""

    endpoint: str


class ConfigFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A config file. None and empty: not given."""

    ledger: str | None = None
    ledger_file: str | None = None
    """A file with the ledger's URL in it, for URLs with passwords."""
    listen: str | None = None
    """HOST:PORT of a regular proxy, beside the upstreams' listeners."""
    commit: str | None = None
    inject: str | None = None
    hosts: tuple[str, ...] = ()
    capture: str | None = None
    prices: str | None = None
    names: str | None = None
    budgets: str | None = None
    """A file with budgets, as `tokentee budget` reads it."""
    workers: int | None = None
    """Processes of a proxy without a command."""
    client_tags: str | None = None
    log: str | None = None
    log_format: str | None = None
    tags: Mapping[str, str] = {}
    metrics: MetricsSettings | None = None
    otlp: OtlpSettings | None = None
    upstream: tuple[UpstreamSettings, ...] = ()


FILES = ("ledger_file", "prices", "names", "budgets")
"""Keys that name a file, from the folder of the config file."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "commit": ("before_end", "async"),
    "inject": ("auto", "always", "never"),
    "client_tags": ("allow", "ignore"),
    "log": ("off", "exchanges"),
    "log_format": ("text", "json"),
}
"""Keys whose value is one of a few words."""
_CONFIG_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(ConfigFile))
_CONFIG_TYPES = {field.encode_name: field.type for field in msgspec.structs.fields(ConfigFile)}


def completed(call: Call, given: Mapping[str, str]) -> Call:
    """The call with the settings of the environment and of the config file, which its own options
    override. LedgerError for a file that cannot be used.

    `given`: the operator's environment. The file's paths of names and budgets are put into this
    process's environment, where their readers find them.
    """
    variable = VARIABLES["workers"]
    if call.workers is None and (named := given.get(variable)):
        call = replace(call, workers=workers_of(named, variable))
    path = path_of(call.config, given)
    if path is None:
        return call
    settings, values = load(path)
    for name in ("names", "budgets"):
        variable, value = VARIABLES[name], values.pop(name, None)
        if chosen := given.get(variable) or value:
            os.environ[variable] = chosen
        else:
            os.environ.pop(variable, None)  # of an earlier reading of the file
    words = []
    set_here = set_options(call.options)
    for name, value in values.items():
        if name not in set_here and not given.get(VARIABLES.get(name, "")):
            words += ["--set", f"{name}={value}"]
    has_modes = call.command or call.listen
    if not has_modes and not any(word.startswith(("--mode", "-m")) for word in call.options):
        for upstream in settings.upstream:
            words += ["--mode", f"reverse:{upstream.url}@{upstream.listen}"]
        if settings.listen is not None:
            words += ["--mode", f"regular@{settings.listen}"]
    sys.stderr.write(f"tokentee: settings from {path}\n")
    workers = call.workers if call.workers is not None else settings.workers
    return replace(call, options=(*words, *call.options), workers=workers)


def path_of(named: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file that `--config` or TOKENTEE_CONFIG names; otherwise that of the user's settings
    folder, or of the system's; None if there is none. One line names a file that is not read."""
    if named or (named := environment.get("TOKENTEE_CONFIG")):
        return Path(named)
    if os.path.isfile(NAME):  # noqa: PTH113  # the current folder may be gone
        sys.stderr.write(f"tokentee: {NAME} in this folder is not read; --config {NAME} names it\n")
    places = (config_directory() / NAME, SYSTEM_FOLDER / NAME)
    return next((path for path in places if path.is_file()), None)


def load(path: Path) -> tuple[ConfigFile, dict[str, str]]:
    """The settings of a file, and its options for the recorder, `names` and `budgets`. LedgerError
    with its problems, each with its line."""
    text = read_text(path, "config file")
    settings, problems = read(text)
    files = {}
    for key in FILES:
        if (named := getattr(settings, key)) is not None:
            files[key] = str(path.parent / expanded(named))
            # `os.path`: a name that the system refuses is no file
            if not os.path.isfile(files[key]):  # noqa: PTH113
                line = line_of_key(text, key)
                problems.append(TomlProblem(line=line, text=f"{key}: no file {named!r}"))
    if problems:
        shown = "; ".join(map(str, problems[:PROBLEMS_SHOWN_MAX]))
        more = len(problems) - PROBLEMS_SHOWN_MAX
        raise LedgerError(f"{path}: {shown}{f'; and {more} more' if more > 0 else ''}")
    hosts = [*settings.hosts]
    for upstream in settings.upstream:
        parts = urlsplit(upstream.url)
        port = f":{parts.port}" if parts.port else ""
        provider = f"={upstream.provider}" if upstream.provider else ""
        host = parts.hostname or ""
        hosts.append(f"{f'[{host}]' if ':' in host else host}{port}{provider}")
    ledger, capture = settings.ledger, settings.capture
    if "ledger_file" in files:
        ledger = read_text(Path(files["ledger_file"]), "file with the ledger URL").strip()
    values = {
        "ledger_url": ledger,
        "ledger_commit": settings.commit,
        "tee_inject": settings.inject,
        "tee_hosts": ",".join(hosts),
        "tee_capture": None if capture is None else str(path.parent / expanded(capture)),
        "tee_prices": files.get("prices"),
        "tee_tags": ",".join(f"{key}={value}" for key, value in settings.tags.items()),
        "tee_client_tags": settings.client_tags,
        "tee_log": settings.log,
        "tee_log_format": settings.log_format,
        "tee_metrics": settings.metrics.listen if settings.metrics else None,
        "tee_otlp": settings.otlp.endpoint if settings.otlp else None,
        "names": files.get("names"),
        "budgets": files.get("budgets"),
    }
    return settings, {name: value for name, value in values.items() if value}


def read(text: str) -> tuple[ConfigFile, list[TomlProblem]]:
    """The valid settings, and each problem in the order of the lines."""
    document, problems = parse(text)
    if problems:
        return ConfigFile(), problems
    problems += unknown_tables(text, document, _CONFIG_KEYS)
    upstreams, found = converted(text, document, "upstream", UpstreamSettings)
    problems += found
    values: dict[str, Any] = {"upstream": tuple(value for _, value in upstreams)}
    for key, value in document.items():
        if key not in _CONFIG_KEYS or key == "upstream":
            continue
        try:
            values[key] = msgspec.convert(value, _CONFIG_TYPES[key], strict=True)
        except msgspec.ValidationError as error:
            kinds: dict[str, type[msgspec.Struct]] = {
                "metrics": MetricsSettings,
                "otlp": OtlpSettings,
            }
            fault = fault_of(error, kinds.get(key, ConfigFile))
            line = line_of_key(text, key)
            name, reason = key, str(fault).partition(": ")[2]
            if key == "tags":  # msgspec does not name the key
                reason = 'write every value as text: "…"'
            elif fault.key != "the table":
                name, line = f"{key}.{fault.key}", line_of_key(text, fault.key) or line
            problems.append(TomlProblem(line=line, text=f"{name}: {reason}"))
    settings = ConfigFile(**values)
    problems += _mistakes(text, settings, dict(upstreams))
    return settings, sorted(problems, key=lambda problem: problem.line or 0)


def _is_address(text: str) -> bool:
    """Whether this is HOST:PORT, with both."""
    host, port = listen_address(text) or ("", 0)
    return bool(host and port)


def _mistakes(
    text: str, settings: ConfigFile, upstreams: Mapping[int, UpstreamSettings]
) -> Iterator[TomlProblem]:
    """Problems of values that have the right type and are invalid."""

    def at(key: str, reason: str) -> TomlProblem:
        return TomlProblem(line=line_of_key(text, key), text=f"{key}: {reason}")

    for key, choices in CHOICES.items():
        value = getattr(settings, key)
        if value is not None and value not in choices:
            yield at(key, f"{value!r} is not one of {', '.join(choices)}")
    if settings.workers is not None and not 0 < settings.workers <= WORKERS_MAX:
        yield at("workers", f"{settings.workers} is not a number from 1 to {WORKERS_MAX}")
    if settings.ledger is not None and settings.ledger_file is not None:
        yield at("ledger_file", "ledger is given, too; keep one of them")
    if settings.listen is not None and not _is_address(settings.listen):
        yield at("listen", f"{settings.listen!r} is not HOST:PORT")
    if settings.metrics is not None and not _is_address(settings.metrics.listen):
        yield at("metrics", f"listen: {settings.metrics.listen!r} is not HOST:PORT")
    if settings.otlp is not None and not _is_origin(settings.otlp.endpoint, with_path=True):
        yield at("otlp", f"endpoint: {without_credentials(settings.otlp.endpoint)!r} is not a URL")
    if len(upstreams) > UPSTREAMS_MAX:
        yield at("upstream", f"{len(upstreams)} of them; at most {UPSTREAMS_MAX}")
    taken: dict[str, str] = {}
    if settings.listen is not None:
        taken[settings.listen] = "the proxy itself"
    if settings.metrics is not None:
        taken[settings.metrics.listen] = "metrics"
    for place, upstream in upstreams.items():
        faults = []
        if not _is_origin(upstream.url, with_path=False):
            shown = without_credentials(upstream.url)
            reason = f"{shown!r} is not http(s)://HOST[:PORT]; it takes no path"
            faults.append(FaultError("url", reason))
        if not _is_address(upstream.listen):
            faults.append(FaultError("listen", f"{upstream.listen!r} is not HOST:PORT"))
        named = [("name", f"name {upstream.name}")] if upstream.name else []
        for key, value in (*named, ("listen", upstream.listen)):
            if value in taken:
                reason = f"{getattr(upstream, key)!r} is taken by {taken[value]}"
                faults.append(FaultError(key, reason))
            taken.setdefault(value, f"upstream {upstream.name or upstream.url!r}")
        for fault in faults:
            line = line_in_table(text, "upstream", place, fault.key)
            yield TomlProblem(line=line, text=f"upstream {place + 1}: {fault}")


def _is_origin(url: str, *, with_path: bool) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # it raises for an invalid port
    except ValueError:
        return False
    has_more = parts.query or parts.fragment or parts.username
    is_bare = with_path or parts.path in ("", "/")
    return bool(parts.scheme in ("http", "https") and parts.hostname and is_bare and not has_more)
