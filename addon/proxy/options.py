"""Edge. mitmproxy's options -> frozen Settings.

Every option is text and is parsed here: mitmproxy drops an addon without a word when the value of
a typed option is bad, and does not enforce choices.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mitmproxy.addonmanager import Loader

from addon.attach import options_of_parts
from addon.metering.attribution import TAG_LENGTH_MAX, TAGS_MAX
from addon.metering.opening import RunRules, Upstream
from ledger.model.errors import LedgerError
from ledger.model.provider_table import normalised
from ledger.settings.small_files import expanded
from ledger.store.engines.urls import default_url, sqlite_path
from ledger.text.printable import without_passwords


class Log(StrEnum):
    """What to log beside errors and warnings."""

    OFF = "off"
    EXCHANGES = "exchanges"
    """One line for each exchange that is settled."""


class Inject(StrEnum):
    """When to ask upstream for usage that the client did not ask for."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOption:
    """An option that a part has. It is read at the start alone."""

    help: str
    read: Callable[[str | None], Any]
    """Its value, which JSON can carry, by its text; None: it is not given. ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one run, checked."""

    ledger_url: str
    commit_before_end: bool = True
    inject: Inject = Inject.AUTO
    capture: Path | None = None
    rules: RunRules
    """For every exchange, as far as options say."""
    log: Log = Log.OFF
    prices: Path | None = None
    wraps: bool = True
    """Whether the set of methods of `wrapped` is wrapped."""
    of_parts: Mapping[str, Any] = field(default_factory=dict)
    """Option of a part -> its value."""


_HELP = {
    "ledger_url": "Where the ledger is: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME. "
    "Default: TOKENTEE_LEDGER, else a SQLite file in the user's data directory.",
    "ledger_commit": "before_end (default): the end of an answer waits until its reading is on "
    "disk; async: it does not.",
    "tee_inject": "Ask upstream for usage the client did not ask for, and take it out again: "
    "auto (default: where it is known or learned to be opt-in, and at hosts that tee_hosts names), "
    "always, never.",
    "tee_hosts": "Hosts to treat as LLM upstreams beside detection by path: "
    "HOST[:PORT][=PROVIDER], comma separated.",
    "tee_capture": "Directory for captures of whole exchanges, credentials redacted. Off by "
    "default: captures hold prompts and answers.",
    "tee_tags": "Tags for every exchange: team=search,env=prod. They win over a client's tags.",
    "tee_client_tags": "Tags in a client's x-tokentee-tag header: allow (default), ignore.",
    "tee_segments": "Keep sizes and keyed hashes of the parts of chat requests, no text, for "
    "`tokentee cache`: on (default), off.",
    "tee_error_text": "Keep the messages of errors in the ledger, which may quote prompts, answers "
    "and keys: off (default: status, type and code alone), on.",
    "tee_log": "What to log beside trouble: off (default); exchanges: one line for each exchange.",
    "tee_prices": "Price override file (TOML); default: prices.toml in the settings folder.",
    "tee_wrap": "Wrap the methods of mitmproxy's HttpStream without which the end of a body cannot "
    "wait for its commit: yes (default), no.",
}


_ADDRESS = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(.*))?")
"""A host, or an IPv6 address in brackets, and a port."""
_OUR_PREFIXES = ("tee_", "ledger_")
NAME_LENGTH_MAX = 64
"""Characters of a mistyped option's name that are repeated."""


@cache
def help_of() -> Mapping[str, str]:
    """Each of our options, those of parts included -> what it does."""
    of_parts, _ = options_of_parts()
    return _HELP | {name: option.help for name, option in of_parts.items()}


def add(loader: Loader) -> None:
    """Declare the options to mitmproxy."""
    for name, text in help_of().items():
        # mitmproxy accepts `Optional[str]`; its annotation does not.
        loader.add_option(name, str | None, None, text)  # type: ignore[arg-type]


def parse(values: Any) -> Settings:
    """The settings of these options. Raises ValueError naming the option and the value.

    `values`: mitmproxy's option manager, with an attribute of text or None for each of `help_of()`.
    """
    of_parts, _ = options_of_parts()
    return Settings(
        ledger_url=_ledger_url(values.ledger_url or default_url()),
        commit_before_end=one_of(
            "ledger_commit", values.ledger_commit, {"before_end": True, "async": False}
        ),
        inject=one_of("tee_inject", values.tee_inject, {str(mode): mode for mode in Inject}),
        wraps=one_of("tee_wrap", values.tee_wrap, {"yes": True, "no": False}),
        rules=RunRules(
            node="",
            upstreams=_upstreams(values.tee_hosts or ""),
            tags=parse_tags("tee_tags", values.tee_tags or ""),
            takes_client_tags=one_of(
                "tee_client_tags", values.tee_client_tags, {"allow": True, "ignore": False}
            ),
            keeps_segments=one_of("tee_segments", values.tee_segments, {"on": True, "off": False}),
            keeps_error_text=one_of(
                "tee_error_text", values.tee_error_text, {"off": False, "on": True}
            ),
        ),
        capture=_directory(values.tee_capture),
        log=one_of("tee_log", values.tee_log, {str(what): what for what in Log}),
        prices=_file(values.tee_prices),
        of_parts={name: option.read(getattr(values, name)) for name, option in of_parts.items()},
    )


_READ_AT_START = {
    "ledger_url": "ledger_url",
    "tee_prices": "prices",
    "tee_wrap": "wraps",
}
"""Options that have no effect afterwards -> the field of `Settings`."""


def refuse_late(settings: Settings, at_start: Settings) -> None:
    """Raise ValueError where an option is another that was read at the start alone."""
    changed = [
        option
        for option, name in _READ_AT_START.items()
        if getattr(settings, name) != getattr(at_start, name)
    ]
    of_parts, at_first = settings.of_parts, at_start.of_parts
    changed += [option for option in of_parts if of_parts[option] != at_first.get(option)]
    for option in changed:
        raise ValueError(f"{option}: stays as it was at the start; restart to change it")


def parse_tags(name: str, text: str) -> dict[str, str]:
    """`team=search,env=prod` -> a dict. Raises ValueError naming what is wrong."""
    tags: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name}: {part!r} is not KEY=VALUE")
        tags[key.strip()[:TAG_LENGTH_MAX]] = value.strip()[:TAG_LENGTH_MAX]
    if len(tags) > TAGS_MAX:
        raise ValueError(f"{name}: {len(tags)} tags; at most {TAGS_MAX} are kept")
    return tags


def unknown_options(
    from_command_line: Iterable[str], from_files: Iterable[str], *, known: Iterable[str]
) -> list[str]:
    """One line for each option that no addon declares, with the nearest name that exists.

    A configuration file may hold options of scripts that this run does not load; there only names
    that begin like ours are mistakes.
    """
    names = sorted({*known, *help_of()})
    _, missing = options_of_parts()
    wrong = [*from_command_line, *(name for name in from_files if name.startswith(_OUR_PREFIXES))]
    lines = []
    for name in dict.fromkeys(wrong):
        # `tee_host` is nearer to ours than to any of mitmproxy's.
        of_ours = [each for each in names if each.startswith(_OUR_PREFIXES)]
        near = difflib.get_close_matches(
            name, of_ours if name.startswith(_OUR_PREFIXES) else names, n=1
        )
        remedy = f"did you mean {near[0]}?" if near else "`mitmdump --options` lists all"
        if name in missing:
            remedy = f"belongs to a part that is missing here: {missing[name]}"
        lines.append(f"unknown option {name[:NAME_LENGTH_MAX]!r}: {remedy}")
    return lines


def one_of[T](name: str, value: str | None, choices: Mapping[str, T]) -> T:
    """What a word stands for; the first of the choices where there is none. ValueError."""
    if value is None:
        return next(iter(choices.values()))
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is not one of {', '.join(choices)}")
    return choices[value]


def _upstreams(text: str) -> tuple[Upstream, ...]:
    upstreams = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        address, equals, provider = part.partition("=")
        found = _ADDRESS.fullmatch(address)
        host, port = found.groups() if found else ("", None)
        if not host or (equals and not provider) or "/" in address:
            raise ValueError(f"tee_hosts: {part!r} is not HOST[:PORT][=PROVIDER]")
        if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"tee_hosts: {port!r} in {part!r} is not a port")
        upstreams.append(
            Upstream(
                host=normalised(host).strip("[]"),
                port=int(port) if port is not None else None,
                provider=provider or None,
            )
        )
    return tuple(upstreams)


def _ledger_url(url: str) -> str:
    """The URL, checked to name a ledger. No message repeats a part that could be a password."""
    try:
        urlsplit(url)
        sqlite_path(url)
    except LedgerError as error:
        raise ValueError(f"ledger_url: {without_passwords(str(error))}") from None
    except ValueError:
        raise ValueError(
            "ledger_url: not a URL (is a bracket in it open, or a character of the password not "
            "percent-encoded?); use sqlite:////path/to/ledger.sqlite3 or "
            "postgresql+psycopg://USER@HOST/NAME"
        ) from None
    return url


def _directory(value: str | None) -> Path | None:
    """A directory that captures can be written to; made where it is missing."""
    if not value:
        return None
    path = expanded(value)
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"tee_capture: {value!r} is not a directory")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"tee_capture: {value!r} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"tee_capture: {value!r} cannot be written to")
    return path


def _file(value: str | None) -> Path | None:
    if not value:
        return None
    path = expanded(value)
    try:
        if path.is_file():
            return path
    except OSError as error:
        raise ValueError(f"tee_prices: {value!r} cannot be read: {error.strerror}") from error
    raise ValueError(f"tee_prices: {value!r} is not a file")
