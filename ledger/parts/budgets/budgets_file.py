"""Edge. The budgets file: limits that stop, limits that only warn, and where alerts go.

    [[budget]]                   # a cap that only warns
    name = "search"
    team = "search"              # the conditions of a cap; none of them: everything
    usd = 500                    # and/or list_value_usd, tokens, requests
    period = "month"             # day, week (from Monday) or month
    # timezone = "Europe/Berlin" # whose days these are; UTC if absent
    thresholds = [50, 80, 100]   # per cent of a limit; 80 and 100 if absent

    [[quota]]                    # alerts on what providers' answers state of limits
    window = "5h"                # as `tokentee limits` names it
    above = [80, 95]             # per cent used; 80 and 95 if absent
    # provider = "anthropic"     # of every provider if absent

    [[cap]]                      # a limit that stops: `caps.py`
    name = "nightly"
    usd = 20
    period = "day"

    [[alert]]                    # where alerts are posted as JSON; without one they are logged
    webhook = "https://alerts.example/tokentee"   # a secret
    # webhook_env = "TOKENTEE_WEBHOOK"            # or a variable that holds the address
    # webhook_file = "/run/secrets/webhook"

Conditions take `*` and `?`; a list means any of its values.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ledger.model.errors import LedgerError
from ledger.parts.budgets.caps import CAPS_MAX, Budget, Cap
from ledger.settings import names_file, toml_tables
from ledger.settings.names import NO_NAMES, Names, Texts, texts
from ledger.settings.small_files import file_in_force, read_text
from ledger.settings.toml_tables import FaultError, TomlProblem

BUDGETS_MAX = 1_000
"""Each is a query to the ledger."""
QUOTA_RULES_MAX = 100
ALERTS_MAX = 20
"""Addresses."""
_GONE = {
    "command": "alerts run no commands: `webhook` posts them as JSON to an address",
    "log": "without any [[alert]] alerts are logged",
}
_PLACES = ("webhook", "webhook_env", "webhook_file")


class QuotaRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[quota]]`: the shares of a limit from which on an alert is sent."""

    window: Texts
    above: list[int] = msgspec.field(default_factory=lambda: [80, 95])
    provider: Texts = None

    def __post_init__(self) -> None:
        """FaultError for an empty condition or an invalid share."""
        for word in ("window", "provider"):
            if (word == "window" or getattr(self, word) is not None) and not all(
                texts(getattr(self, word)) or ("",)
            ):
                raise FaultError(word, "empty")
        if not self.above or not all(0 < each <= 1000 for each in self.above):
            raise FaultError("above", "write per cents from 1 to 1000: [80, 95]")

    def is_for(self, provider: str, window: str) -> bool:
        """Whether it is about this limit."""
        providers = texts(self.provider) or ("*",)
        return any(fnmatchcase(window, each) for each in texts(self.window)) and any(
            fnmatchcase(provider, each) for each in providers
        )


class Destination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[alert]]`. Its address is a secret: neither errors nor logs show it."""

    webhook: str | None = None
    webhook_env: str | None = None
    webhook_file: str | None = None
    command: object = None
    log: object = None

    def __post_init__(self) -> None:
        """FaultError unless exactly one address is named."""
        for word, instead in _GONE.items():
            if getattr(self, word) is not None:
                raise FaultError(word, instead)
        named = [each for each in _PLACES if getattr(self, each)]
        if len(named) != 1:
            raise FaultError(named[1] if named else _PLACES[0], f"give one of {', '.join(_PLACES)}")
        if self.webhook and not _is_address(self.webhook):
            raise FaultError("webhook", "not a URL that begins with https:// or http://")

    def __repr__(self) -> str:
        """Without the address."""
        return f"Destination({next(each for each in _PLACES if getattr(self, each))})"

    def address(self) -> str:
        """The URL; LedgerError if there is none. The error does not show it."""
        url, where = self.webhook or "", "webhook"
        if self.webhook_env:
            where = f"the variable {self.webhook_env}"
            url = os.environ.get(self.webhook_env, "")
        elif self.webhook_file:
            where = f"the file {self.webhook_file}"
            url = read_text(Path(self.webhook_file), "webhook file").strip()
        if not _is_address(url):
            raise LedgerError(f"{where} holds no URL that begins with https:// or http://")
        return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The budgets file."""

    budgets: tuple[Cap, ...] = ()
    """Those that only warn."""
    caps: tuple[Cap, ...] = ()
    """Those that stop."""
    quotas: tuple[QuotaRule, ...] = ()
    destinations: tuple[Destination, ...] = ()


NO_BUDGETS = Budgets()


def read(text: str) -> tuple[Budgets, list[TomlProblem]]:
    """The valid budgets of a TOML text, and each problem."""
    document, problems = toml_tables.parse(text)
    problems += toml_tables.unknown_tables(text, document, ("budget", "cap", "quota", "alert"))
    budgets, wrong = toml_tables.converted(text, document, "budget", Budget)
    destinations, wrong_too = toml_tables.converted(text, document, "alert", Destination)
    quotas, wrong_quotas = toml_tables.converted(text, document, "quota", QuotaRule)
    caps, wrong_caps = toml_tables.converted(text, document, "cap", Cap)
    problems += [*wrong, *wrong_quotas, *wrong_too, *wrong_caps]
    named: Mapping[str, Sequence[tuple[int, Cap]]] = {"budget": budgets, "cap": caps}
    for table, entries in named.items():
        counts = Counter(entry.name for _, entry in entries)
        for place, entry in entries:
            if counts[entry.name] > 1:
                fault = FaultError("name", f"{entry.name!r} is the name of several {table}s")
                problems.append(toml_tables.problem_of(text, table, place, fault))
    for kind, count, most in (
        ("budgets", len(budgets), BUDGETS_MAX),
        ("quotas", len(quotas), QUOTA_RULES_MAX),
        ("alerts", len(destinations), ALERTS_MAX),
        ("caps", len(caps), CAPS_MAX),
    ):
        if count > most:
            problems.append(TomlProblem(line=None, text=f"more than {most} {kind}"))
    limits = [entry for _, entry in (*budgets[:BUDGETS_MAX], *caps[:CAPS_MAX])]
    return (
        Budgets(
            budgets=tuple(each for each in limits if not each.stops),
            caps=tuple(each for each in limits if each.stops),
            quotas=tuple(each for _, each in quotas[:QUOTA_RULES_MAX]),
            destinations=tuple(each for _, each in destinations[:ALERTS_MAX]),
        ),
        problems,
    )


def path_of(named: str | None) -> Path | None:
    """The file that an option or `TOKENTEE_BUDGETS` names, or an existing `budgets.toml` in the
    settings folder."""
    return file_in_force(named, "TOKENTEE_BUDGETS", "budgets.toml")


def load(named: str | None) -> Budgets:
    """The budgets in force; none without a file. LedgerError for a wrong file."""
    path = path_of(named)
    if path is None:
        return NO_BUDGETS
    return toml_tables.valid(path, read(read_text(path, "budgets file")))


def check_persons(caps: Iterable[Cap], names: str | None) -> None:
    """LedgerError for a cap of a person if there is no names file. `names`: the one that an option
    names."""
    for cap in caps:
        if cap.person and names_file.path_of(names) is None:
            raise LedgerError(
                f"the cap {cap.name} is for a person: there is no names file; TOKENTEE_NAMES or "
                "`names` in the settings file names it"
            )


type InForce = tuple[tuple[Cap, ...], Names]


class CapFile:
    """The caps of the budgets file, while it changes."""

    def __init__(self) -> None:
        self._seen: object = None
        self._has_caps = False
        self._was_empty = False

    def first(self, own: tuple[Cap, ...]) -> InForce:
        """At the start: the caps of the file, and these. LedgerError if they are wrong."""
        self._seen = _state()
        found = _load(own)
        self._has_caps = len(found[0]) > len(own)
        return found

    def changed(self, own: tuple[Cap, ...]) -> InForce | None:
        """The same if the file is another than at the last look. One that has no caps any more
        counts only when that is still so at the next look: it may be half written."""
        seen = _state()
        if seen == self._seen and not self._was_empty:
            return None
        self._seen = seen
        found = _load(own)
        is_empty = len(found[0]) == len(own)
        if is_empty and self._has_caps and not self._was_empty:
            self._was_empty = True
            return None
        self._was_empty, self._has_caps = False, not is_empty
        return found


def _load(own: tuple[Cap, ...]) -> InForce:
    caps = (*own, *load(None).caps)
    for name, count in Counter(cap.name for cap in caps).items():
        if count > 1:
            raise LedgerError(f"{name!r} is the name of several caps")
    check_persons(caps, None)
    return caps, names_file.load(None) if caps else NO_NAMES


def _state() -> list[object]:
    """What changes when one of the files does."""
    found: list[object] = []
    for path in (path_of(None), names_file.path_of(None)):
        try:
            stat = path.stat() if path is not None else None
        except OSError:
            stat = None
        found.append(stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return found


def _is_address(url: str) -> bool:
    """Whether the text is a URL that alerts can be posted to."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
