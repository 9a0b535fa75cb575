"""Pure. The budgets file.

    [[budget]]
    name = "search"
    team = "search"              # or person, cost_centre, key, model, provider, session, project,
    usd = 500                    #   tag = "NAME=VALUE"; none of them: everything
    period = "month"             # day, week (from Monday) or month
    # timezone = "Europe/Berlin" # whose days these are; UTC if absent
    thresholds = [50, 80, 100]   # per cent of usd; 80 and 100 if absent

    [[quota]]                    # alerts on what providers' answers state of limits
    window = "5h"                # as `tokentee limits` names it
    above = [80, 95]             # per cent used; 80 and 95 if absent
    # provider = "anthropic"     # of every provider if absent

    [[cap]]                      # a limit that stops: `ledger/caps/caps.py`
    name = "nightly"
    usd = 20
    period = "day"

    [[alert]]                    # where alerts go; any number of them
    webhook = "https://hooks.slack.com/services/…"   # Slack-compatible JSON; a secret
    # webhook_env = "TOKENTEE_WEBHOOK"               # or a variable that holds the URL
    # webhook_file = "/run/secrets/webhook"

    [[alert]]
    command = ["notify-send", "tokentee"]            # the alert is JSON on its standard input

    [[alert]]
    log = true                                       # a warning in the proxy's log

Conditions take `*` and `?`; a list means any of its values.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ledger.caps.caps import CAPS_MAX, Cap
from ledger.model.errors import WrongCallError
from ledger.model.money import PICOUSD_PER_USD
from ledger.settings import toml_tables
from ledger.settings.names import Texts, texts
from ledger.settings.toml_tables import FaultError, TomlProblem
from ledger.text.period import zone_of

BUDGETS_MAX = 1_000
"""Each budget is a query to the ledger."""
ALERTS_MAX = 20
"""Destinations of alerts."""
QUOTA_RULES_MAX = 100
BUDGET_USD_MAX = 10**9
"""No real budget is larger; a limit must be comparable with sums of amounts."""
BUDGET_CONDITIONS = (
    "team",
    "person",
    "cost_centre",
    "key",
    "model",
    "provider",
    "session",
    "project",
    "tag",
)


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[budget]]`."""

    name: str
    usd: Decimal | int
    period: Literal["day", "week", "month"]
    timezone: str = "UTC"
    thresholds: list[int] = msgspec.field(default_factory=lambda: [80, 100])
    team: Texts = None
    person: Texts = None
    cost_centre: Texts = None
    key: Texts = None
    model: Texts = None
    provider: Texts = None
    session: Texts = None
    project: Texts = None
    tag: Texts = None

    def __post_init__(self) -> None:
        """FaultError for an invalid amount, threshold or condition."""
        if not self.name.strip():
            raise FaultError("name", "empty")
        usd = Decimal(self.usd)
        if not usd.is_finite() or not 0 < usd <= BUDGET_USD_MAX:
            raise FaultError(
                "usd", f"{str(usd)[:40]} is not an amount of up to {BUDGET_USD_MAX:,} USD"
            )
        try:
            zone_of(self.timezone)
        except WrongCallError as error:
            raise FaultError("timezone", str(error)) from None
        if not self.thresholds or not all(0 < each <= 1000 for each in self.thresholds):
            raise FaultError("thresholds", "write per cents from 1 to 1000: [50, 80, 100]")
        for word in BUDGET_CONDITIONS:
            if getattr(self, word) is not None and not all(texts(getattr(self, word)) or ("",)):
                raise FaultError(word, "empty")
        for pair in texts(self.tag):
            if not pair.partition("=")[1]:
                raise FaultError("tag", f"{pair!r} is not NAME=VALUE")

    @property
    def limit_picousd(self) -> int:
        """The limit of one period."""
        return int(Decimal(self.usd) * PICOUSD_PER_USD)

    def only(self) -> tuple[tuple[str, str], ...]:
        """The conditions, as a scope takes them."""
        return tuple(
            (f"tag:{value.partition('=')[0]}", value.partition("=")[2])
            if word == "tag"
            else (word, value)
            for word in BUDGET_CONDITIONS
            for value in texts(getattr(self, word))
        )


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
    """One `[[alert]]`. A webhook's URL is a secret: neither errors nor logs show it."""

    webhook: str | None = None
    webhook_env: str | None = None
    webhook_file: str | None = None
    command: list[str] | None = None
    log: bool | None = None

    def __post_init__(self) -> None:
        """FaultError unless exactly one destination is named."""
        named = [each for each in DESTINATIONS if getattr(self, each)]
        if len(named) != 1:
            raise FaultError(named[1] if named else "log", f"give one of {', '.join(DESTINATIONS)}")
        if self.webhook and not is_webhook(self.webhook):
            raise FaultError("webhook", "not a URL that begins with https:// or http://")

    def __repr__(self) -> str:
        """Without the URL."""
        return f"Destination({next(each for each in DESTINATIONS if getattr(self, each))})"


DESTINATIONS = ("webhook", "webhook_env", "webhook_file", "command", "log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The budgets file."""

    budgets: tuple[Budget, ...] = ()
    quotas: tuple[QuotaRule, ...] = ()
    destinations: tuple[Destination, ...] = ()
    caps: tuple[Cap, ...] = ()


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
    named: Mapping[str, Sequence[tuple[int, Budget | Cap]]] = {"budget": budgets, "cap": caps}
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
    return (
        Budgets(
            budgets=tuple(budget for _, budget in budgets[:BUDGETS_MAX]),
            quotas=tuple(each for _, each in quotas[:QUOTA_RULES_MAX]),
            destinations=tuple(each for _, each in destinations[:ALERTS_MAX]),
            caps=tuple(each for _, each in caps[:CAPS_MAX]),
        ),
        problems,
    )


def is_webhook(url: str) -> bool:
    """Whether the text is a URL that alerts can be posted to."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
