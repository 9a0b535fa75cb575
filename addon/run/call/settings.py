"""Pure. Parses the text of a config file into settings, with the line of every mistake."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from addon.run.call.arguments import WORKERS_MAX
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

UPSTREAMS_MAX = 100
"""Listeners of one process; each is a socket and a mode of mitmproxy."""


class UpstreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One upstream, and the address at which clients reach it."""

    name: str
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
"""Keys that name a file."""
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
        for key, value in (("name", f"name {upstream.name}"), ("listen", upstream.listen)):
            if value in taken:
                reason = f"{getattr(upstream, key)!r} is taken by {taken[value]}"
                faults.append(FaultError(key, reason))
            taken.setdefault(value, f"upstream {upstream.name!r}")
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
