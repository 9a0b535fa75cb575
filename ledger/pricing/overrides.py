"""Edge. The operator's own prices: the file that `tee_prices` names, read once and validated
completely. docs/using.md ("Prices") shows its `[[price]]` and `[[gateway]]` tables; beside these:

    litellm = "model_prices_and_context_window.json"    # a second source; beside this file

    [[price]]
    model = "gpt-5*"
    until = 2027-01-01              # up to, not including
    service_tier = "flex"           # absent: the standard tier; "*": every tier

    [[rule]]                        # a billing rule, as in billing_rules.toml; see rules.py
    name = "our-discount"
    page = "the contract of 2026"
    hosts = ["api.openai.com"]
    factor = 0.9

Figures are read as decimals, never as floats; every name is checked, because a misspelt line would
silently give a wrong price.
"""

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

from ledger.model.errors import LedgerError
from ledger.pricing import rules as billing
from ledger.pricing.litellm import LiteLLM
from ledger.pricing.override_tables import GatewayTable, PriceTable, rates_of, span_of
from ledger.pricing.price_lines import NO_TIME, Rate
from ledger.pricing.price_lists import Gateway, PriceQuestion
from ledger.pricing.published import tier_name
from ledger.settings import small_files, toml_tables
from ledger.settings.toml_tables import FaultError, TomlProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceEntry:
    """One `[[price]]`."""

    host: str
    provider: str
    model: str
    tier: str | None
    """None: the standard tier."""
    since: datetime
    until: datetime
    rates: Mapping[str, Rate]
    rest: Rate | None
    """The price of every other line, of an entry that is declared free."""

    def applies_to(self, question: PriceQuestion, tier: str | None) -> bool:
        """Whether the entry applies to this host, provider, model and tier at any time."""
        is_tier = tier_name(tier) is None
        if self.tier is not None:
            is_tier = self.tier == "*" or (tier or "").lower() == self.tier.lower()
        return (
            is_tier
            and fnmatchcase(question.host, self.host)
            and fnmatchcase(question.provider.lower(), self.provider)
            and fnmatchcase((question.model or "").lower(), self.model)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """One override file."""

    entries: tuple[PriceEntry, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    litellm: LiteLLM | None = None
    rules: billing.Rules = field(default_factory=billing.Rules)
    digest: str = ""


NO_OVERRIDES = Overrides()


def load(named: str | None) -> Overrides:
    """The file of this name, else of `TOKENTEE_PRICES`, else `prices.toml` in the settings folder;
    a LedgerError that names its first problem."""
    path = small_files.file_in_force(named, "TOKENTEE_PRICES", "prices.toml")
    if path is None:
        return NO_OVERRIDES
    command = f"tokentee prices check {shlex.quote(str(path))}"
    return toml_tables.valid(path, check(str(path)), command)


def check(path: str) -> tuple[Overrides, list[str]]:
    """The valid part of the file, and each problem in one line; LedgerError if it cannot be
    read."""
    text = small_files.read_text(Path(path), "price file")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    document, problems = toml_tables.parse(text)
    problems += toml_tables.unknown_tables(
        text, document, ("price", "gateway", "rule", "field", "litellm")
    )
    prices, wrong = toml_tables.converted(text, document, "price", PriceTable)
    problems += wrong
    entries: list[PriceEntry] = []
    for place, table in prices:
        try:
            entries.append(_entry(table, f"override sha256:{digest}"))
        except FaultError as fault:
            problems.append(toml_tables.problem_of(text, "price", place, fault))
    gateways, wrong = toml_tables.converted(text, document, "gateway", GatewayTable)
    problems += wrong
    rules, wrong = billing.of_document(text, document)
    problems += wrong
    litellm = None
    if "litellm" in document:
        where, reason = document["litellm"], ""
        if isinstance(where, str) and where:
            try:
                litellm = LiteLLM.load(Path(path).parent / where)
            except LedgerError as error:
                reason = str(error)
        else:
            reason = f"{str(where)[:60]} is not a path"
        if reason:
            line = toml_tables.line_of_key(text, "litellm")
            problems.append(TomlProblem(line=line, text=str(FaultError("litellm", reason))))
    return (
        Overrides(
            entries=tuple(entries),
            gateways=tuple(
                Gateway(host=each.host.lower(), prices=each.prices, models=each.models)
                for _, each in gateways
            ),
            litellm=litellm,
            rules=rules,
            digest=digest,
        ),
        [str(problem) for problem in problems],
    )


def in_force(
    entries: tuple[PriceEntry, ...], at: datetime
) -> tuple[dict[str, Rate], Rate | None, datetime, datetime]:
    """The prices of matching entries at a moment: rates, the price of every other line, and the
    span around the moment in which nothing changes."""
    rates: dict[str, Rate] = {}
    rest: Rate | None = None
    since, until = NO_TIME
    for entry in entries:
        for moment in (entry.since, entry.until):
            if moment <= at:
                since = max(since, moment)
            else:
                until = min(until, moment)
        if entry.since <= at < entry.until:
            if entry.rest:
                rates, rest = {}, entry.rest
            rates.update(entry.rates)
    return rates, rest, since, until


def _entry(table: PriceTable, source: str) -> PriceEntry:
    rates = dict(rates_of(table, source))
    if table.free and rates:
        raise FaultError("free", "a free entry has no prices beside")
    if not table.free and not rates:
        raise FaultError("usd_per_mtok or usd_each", "the entry has no price; free = true for none")
    since, until = span_of(table.since, table.until)
    tier = table.service_tier or ("*" if table.free else None)
    return PriceEntry(
        host=(table.host or "*").lower(),
        provider=(table.provider or "*").lower(),
        model=(table.model or "*").lower(),
        tier=None if tier is not None and tier_name(tier) is None else tier,
        since=since,
        until=until,
        rates=rates,
        rest=Rate(0, source, note="declared free") if table.free else None,
    )
