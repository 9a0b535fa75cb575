"""Edge. Finds and reads the config file in force, and makes the proxy's options of its settings.

A file in the current folder was found, not named: whoever wrote the folder wrote it. It may set
what is harmless. What runs commands, sends data away, decrypts more or moves the ledger needs
`--config FILE`, or `tokentee config trust FILE`, which remembers the digest of the file and of the
files that it names, as direnv and git do (https://direnv.net/, git-config `safe.directory`).
"""

import hashlib
import json
import os
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from addon.run.call.settings import FILES, ConfigFile, read
from ledger.budgets.budgets import read as read_budgets
from ledger.model.errors import LedgerError
from ledger.settings import toml_tables
from ledger.settings.small_files import (
    SYSTEM_FOLDER,
    config_directory,
    expanded,
    read_bytes,
    read_text,
    text_of,
    write_whole,
)
from ledger.settings.toml_tables import TomlProblem

NAME = "tokentee.toml"
VARIABLES: Mapping[str, str] = {
    "ledger_url": "TOKENTEE_LEDGER",
    "tee_prices": "TOKENTEE_PRICES",
    "names": "TOKENTEE_NAMES",
    "budgets": "TOKENTEE_BUDGETS",
    "workers": "TOKENTEE_WORKERS",
}
"""Option -> the environment variable that overrides the config file."""
OUTSIDE = ("names", "budgets", "workers")
"""Options that are not the recorder's: it does not know them."""
FILE = "file"
HARMLESS = frozenset({"tags", "client_tags", "log", "log_format", "names", "budgets"})
"""Keys that any file may set; `budgets` only if they have no alerts. A key that is not listed here
is not harmless."""
URL_FILE = "file with the ledger URL"
STORE = "trusted.json"
FILES_MAX = 1_000
"""Trusted files that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, with its value in force."""

    name: str
    value: str
    source: str
    """`file` or the environment variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A config file and the files that it names, each read once: somebody may exchange a file
    between two readings, so what is checked is what is used."""

    path: Path
    text: str
    settings: ConfigFile
    files: Mapping[str, bytes | LedgerError]
    """Key -> the content of the file that it names, or why it cannot be read."""

    @property
    def digest(self) -> str:
        """Digest of the config file and of the files that it names."""
        found = hashlib.sha256(self.text.encode())
        for key in self.files:
            found.update(f"\0{key}\0{self.file_digest(key)}".encode())
        return found.hexdigest()

    def file_digest(self, key: str) -> str:
        """Digest of a file that a key names; `none` if it cannot be read."""
        content = self.files[key]
        return "none" if isinstance(content, LedgerError) else hashlib.sha256(content).hexdigest()


def path_of(named: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that `--config` or TOKENTEE_CONFIG names; otherwise the first existing one of
    `places`; None if there is none."""
    if named or (named := environment.get("TOKENTEE_CONFIG")):
        return Path(named)
    return next((path for path in places() if path.is_file()), None)


def in_force(path: Path, named: str | None, environment: Mapping[str, str]) -> Loaded:
    """A file with its settings; of one that was only found in the current folder and is not
    trusted, the harmless ones. One line says what is left out. LedgerError for the first
    problem."""
    loaded = load(path)
    was_named = named or environment.get("TOKENTEE_CONFIG")
    if was_named or path != Path(NAME):
        return loaded
    if remembered().get(str(path.resolve())) == loaded.digest:
        return loaded
    settings, left_out = restricted(loaded)
    if left_out:
        sys.stderr.write(
            f"tokentee: {path} was found, not named, and is not trusted: it does not set "
            f"{', '.join(left_out)}; --config {path} does, or tokentee config trust {path}\n"
        )
    return replace(loaded, settings=settings)


def places() -> tuple[Path, ...]:
    """The paths that are searched for a config file, in this order."""
    return tuple(dict.fromkeys((Path(NAME), config_directory() / NAME, SYSTEM_FOLDER / NAME)))


def beside(folder: Path, named: str) -> Path:
    """A file that a config file names: relative to the config file's folder."""
    return folder / expanded(named)


def check(path: Path) -> tuple[Loaded, list[TomlProblem]]:
    """A file with its valid settings, and each problem. LedgerError if the file cannot be read."""
    text = read_text(path, "config file")
    settings, problems = read(text)
    files: dict[str, bytes | LedgerError] = {}
    for key in FILES:
        named = getattr(settings, key)
        if named is None:
            continue
        file = beside(path.parent, named)
        # `os.path`: a name that the system refuses is no file
        if not os.path.isfile(file):  # noqa: PTH113
            problems.append(
                TomlProblem(
                    line=toml_tables.line_of_key(text, key), text=f"{key}: no file {named!r}"
                )
            )
            continue
        try:
            files[key] = read_bytes(file, URL_FILE if key == "ledger_file" else f"{key} file")
        except LedgerError as error:  # said by what uses the file
            files[key] = error
    return Loaded(path=path, text=text, settings=settings, files=files), problems


def load(path: Path) -> Loaded:
    """A file with its settings. LedgerError for the first problem."""
    return toml_tables.valid(path, check(path), "tokentee config check")


def ledger_url(loaded: Loaded) -> str | None:
    """The ledger's URL, from the file that `ledger_file` names if it is set."""
    named = loaded.settings.ledger_file
    if named is None:
        return loaded.settings.ledger
    content = loaded.files["ledger_file"]
    if isinstance(content, LedgerError):
        raise content
    return text_of(content, beside(loaded.path.parent, named), URL_FILE).strip()


def options_of(loaded: Loaded, environment: Mapping[str, str]) -> list[Option]:
    """The options in force: those of the recorder, the files of names and budgets, the number of
    workers."""
    settings = loaded.settings

    def named(file: str | None) -> str | None:
        return None if file is None else str(beside(loaded.path.parent, file))

    named_hosts = [*settings.hosts]
    for upstream in settings.upstream:
        if upstream.provider is not None:
            parts = urlsplit(upstream.url)
            port = f":{parts.port}" if parts.port else ""
            named_hosts.append(f"{parts.hostname}{port}={upstream.provider}")
    values: dict[str, str | None] = {
        "ledger_url": ledger_url(loaded),
        "ledger_commit": settings.commit,
        "tee_inject": settings.inject,
        "tee_hosts": ",".join(named_hosts),
        "tee_capture": named(settings.capture),
        "tee_prices": named(settings.prices),
        "tee_tags": ",".join(f"{key}={value}" for key, value in settings.tags.items()),
        "tee_client_tags": settings.client_tags,
        "tee_log": settings.log,
        "tee_log_format": settings.log_format,
        "tee_metrics": settings.metrics.listen if settings.metrics else None,
        "tee_otlp": settings.otlp.endpoint if settings.otlp else None,
        "names": named(settings.names),
        "budgets": named(settings.budgets),
        "workers": None if settings.workers is None else str(settings.workers),
    }
    found = []
    for name, value in values.items():
        variable = VARIABLES.get(name)
        if variable is not None and environment.get(variable):
            found.append(Option(name=name, value=environment[variable], source=variable))
        elif value:
            found.append(Option(name=name, value=value, source=FILE))
    return found


def modes_of(settings: ConfigFile) -> list[str]:
    """mitmproxy's modes: a reverse proxy for each upstream, and a regular one if requested."""
    modes = [f"reverse:{upstream.url}@{upstream.listen}" for upstream in settings.upstream]
    if settings.listen is not None:
        modes.append(f"regular@{settings.listen}")
    return modes


def words_of(options: Iterable[Option], *, given: Container[str]) -> list[str]:
    """The recorder's options as words for mitmproxy's parser. `given`: those that the command line
    sets, which override the file."""
    return [
        word
        for option in options
        if option.name not in given and option.name not in OUTSIDE
        for word in ("--set", f"{option.name}={option.value}")
    ]


def restricted(loaded: Loaded) -> tuple[ConfigFile, list[str]]:
    """What an untrusted file may set, and the keys that are left out."""
    settings, empty = loaded.settings, ConfigFile()
    left_out = [
        name
        for name in ConfigFile.__struct_fields__
        if getattr(settings, name) != getattr(empty, name)
        and (name not in HARMLESS or (name in FILES and not _is_harmless(loaded, name)))
    ]
    values = {name: getattr(empty, name) for name in left_out}
    return msgspec.structs.replace(settings, **values), left_out


def _is_harmless(loaded: Loaded, key: str) -> bool:
    """Whether a file that a key names lies beside the config file, and runs and sends nothing."""
    folder, content = loaded.path.parent, loaded.files[key]
    named = beside(folder, getattr(loaded.settings, key))
    if isinstance(content, LedgerError) or not named.resolve().is_relative_to(folder.resolve()):
        return False
    if key != "budgets":
        return True
    budgets, problems = read_budgets(content.decode("utf-8", "replace"))
    return not problems and not budgets.destinations


def remembered() -> Mapping[str, str]:
    """Path of each trusted file -> its digest. LedgerError for a damaged list."""
    store = config_directory() / STORE
    if not store.is_file():
        return {}
    try:
        return msgspec.json.decode(read_bytes(store, "list of trusted files"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise LedgerError(f"{store}: {error}; remove it, and trust your files again") from None


def remember(path: Path, digest: str | None) -> None:
    """Trust a file with this digest; None: no longer. LedgerError if the list cannot be written."""
    files = {**remembered()}
    key = str(path.resolve())
    files.pop(key, None)
    if digest is not None:
        files[key] = digest
    store = config_directory() / STORE
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        kept = dict(list(files.items())[-FILES_MAX:])
        write_whole(store, json.dumps(kept, indent=1).encode())
    except OSError as error:
        raise LedgerError(f"cannot write {store}: {error.strerror}") from None
