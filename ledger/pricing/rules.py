"""Edge (the file of rules). Billing rules that providers publish beyond a price per model, as data.

`billing_rules.toml` beside this module is the table; a price file may have `[[rule]]` tables of its
own, which come after these. A rule has conditions, as they stand on the wire, and effects. All of
its conditions must hold; a condition that is left out always holds:

    [[rule]]
    name = "anthropic-us"            # stands in the price source of a charge
    page = "https://…"               # where the provider publishes it
    lists = ["anthropic"]            # price lists
    hosts = ["*.anthropic.com"]      # globs, as are models and not_models
    models = ["claude-*"]            # the name on the wire, or the model's id in the list
    not_models = ["claude-3*"]
    tiers = ["batch"]                # service tiers; such a rule applies where the list has no
                                     # price for the tier
    listed_tiers = ["batch"]         # where the list has one, which lacks something
    fields = { inference_geo = "us" }  # billing fields of the usage object, wherever they stand in
                                     # it; "" is absent
    from = 2026-02-05                # and until: moments
    days = ["sat", "sun", 2026-10-01]
    hours = ["22:00-04:00"]          # UTC; `days` are those of each moment

    factor = 1.1                     # multiplies the prices of `lines`, by default all tokens
    lines = ["uncached_input"]
    usd_per_mtok = { output = 2.0 }  # prices in place of the list's; also usd_each, [[rule.above]]
    times = { cache_write_12h = "2.5 uncached_input" }   # a line without a price of its own is
                                     # billed at a multiple of another line's price
    once = ["web_searches"]          # billed once for a request, for any number of units
    at_least = { audio_milliseconds = 10_000 }   # billed even if the request has fewer units
    free = true                      # tokens cost nothing; a text says why
    bill = "reported"                # the figure in the answer is the bill, or a unit's name
    partial = "…"                    # why the price is known in part only
    unless = ["anthropic-*"]         # not where one of these rules applies

    columns = ["name", "usd_per_mtok.output"]   # in the file of the product: several rules that
    rows = [["x", 2], ["y", 3]]      # differ in these, "" for none

    [[field]]                        # a field of the usage object that prices depend on
    name = "inference_geo"
    known = ["global"]               # values that are billed at the list price
    page = "https://…"

Prices come first, then factors, which stack. Tools are not tokens, so no factor reaches them. A
field's value, or a service tier, that neither the list nor a rule knows makes a request `partial`,
and so does a field without a `[[field]]` whose name is one of a way to be served.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ledger.model.usage import REFUSED, SERVICE_TIER, billing_fields
from ledger.pricing.override_tables import FiguresTable, rates_of, span_of
from ledger.pricing.price_lines import NO_TIME, TOKEN_LINES, Rate
from ledger.settings import toml_tables
from ledger.settings.toml_tables import FaultError, TomlProblem

RULES_FILE = Path(__file__).with_name("billing_rules.toml")
REPORTED_BILL = "reported"
"""`bill` of a rule: the cost that the provider reports is what it bills."""
_TIER_KEY = f'"{SERVICE_TIER}"'
_ENDINGS = tuple(
    f'{each}"'
    for each in (
        *("tier", "geo", "region", "zone", "speed", "mode", "latency", "priority", "resolution"),
        *("_size", "_search", "_type", "_format", REFUSED),
    )
)
"""What the name of every billing field ends in, known or not, in lower case."""
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MULTIPLE = re.compile(rf"(\d{{1,4}}(?:\.\d{{1,4}})?) ({'|'.join(TOKEN_LINES)})")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


class RuleTable(FiguresTable, frozen=True, kw_only=True, rename={"since": "from"}):
    """One `[[rule]]`."""

    name: str
    page: str
    lists: list[str] = msgspec.field(default_factory=list)
    hosts: list[str] = msgspec.field(default_factory=list)
    models: list[str] = msgspec.field(default_factory=list)
    not_models: list[str] = msgspec.field(default_factory=list)
    tiers: list[str] = msgspec.field(default_factory=list)
    listed_tiers: list[str] = msgspec.field(default_factory=list)
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    since: Any = None
    until: Any = None
    days: list[Any] = msgspec.field(default_factory=list)
    hours: list[str] = msgspec.field(default_factory=list)
    factor: int | Decimal | None = None
    lines: list[str] = msgspec.field(default_factory=list)
    times: dict[str, str] = msgspec.field(default_factory=dict)
    once: list[str] = msgspec.field(default_factory=list)
    at_least: dict[str, int] = msgspec.field(default_factory=dict)
    free: bool | str = False
    bill: str = ""
    partial: str = ""
    unless: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """FaultError for a rule that says nothing, or that cannot be read."""
        for key in ("name", "page"):
            if not getattr(self, key):
                raise FaultError(key, "empty")
        figures = (self.usd_per_mtok, self.usd_each, self.times, self.once, self.at_least)
        if self.factor is None and not any((*figures, self.free, self.bill, self.partial)):
            raise FaultError("factor", "the rule has no effect")
        if self.factor is not None and not (
            Decimal(self.factor).is_finite() and 0 <= self.factor <= 1000
        ):
            raise FaultError("factor", f"{str(self.factor)[:60]} is not a factor from 0 to 1000")
        for line in (*self.lines, *self.times):
            if line not in TOKEN_LINES:
                key = "lines" if line in self.lines else "times"
                raise FaultError(key, f"{line!r} is not a line of tokens")
        for multiple in self.times.values():
            if not _MULTIPLE.fullmatch(multiple):
                raise FaultError("times", f"{multiple[:60]!r} is not like '2.5 uncached_input'")
        for span in self.hours:
            if not _HOURS.fullmatch(span):
                raise FaultError("hours", f"{span!r} is not like 01:00-04:00")
            if span[:5] == span[6:]:
                raise FaultError("hours", f"{span!r} has no time in it; a whole day needs no hours")
        for day in self.days:
            if day not in _DAYS and type(day) is not date:
                raise FaultError("days", f"{str(day)[:60]!r} is not a date, or mon ... sun")


class FieldTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[field]]`: a field of the usage object that prices depend on."""

    name: str
    page: str
    known: list[str] = []
    """Values that are billed at the list price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a request's prices depend on, beside its size and the moment."""

    host: str
    lists: tuple[str, ...]
    models: tuple[str, ...]
    """The names on the wire and the id in the list, in lower case."""
    tier: str | None = None
    """Of a tier that the list has no price for; None: the list's prices are for its tier."""
    listed_tier: str | None = None
    """The tier, if the list has a price for it."""
    fields: Mapping[str, str]

    def field(self, name: str) -> str:
        """The value of a billing field, which may stand inside another object; empty: absent."""
        inside = (value for path, value in self.fields.items() if path.endswith(f".{name}"))
        return self.fields.get(name) or next(inside, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, with its figures in pico-USD and its moments in UTC."""

    table: RuleTable
    since: datetime
    until: datetime
    rates: Mapping[str, Rate]

    @property
    def source(self) -> str:
        """As the price source of a charge names it."""
        return f"rule {self.table.name}"

    def matches(self, case: Case) -> bool:
        """Whether the rule is for such a request, at any time."""
        table = self.table
        return (
            (not table.lists or not set(table.lists).isdisjoint(case.lists))
            and (not table.tiers or case.tier in table.tiers)
            and (not table.listed_tiers or case.listed_tier in table.listed_tiers)
            and all(case.field(name) == value for name, value in table.fields.items())
            and (not table.hosts or _fits((case.host,), [each.lower() for each in table.hosts]))
            and (not table.models or _fits(case.models, table.models))
            and not _fits(case.models, table.not_models)
        )

    def is_active(self, at: datetime) -> bool:
        """Whether the rule is in force at a moment in UTC."""
        if not self.since <= at < self.until:
            return False
        days, hours = self.table.days, self.table.hours
        if days and _DAYS[at.weekday()] not in days and at.date() not in days:
            return False
        now = at.strftime("%H:%M")
        return not hours or any(
            begin <= now < end if begin < end else now >= begin or now < end
            for begin, end in (span.split("-") for span in hours)
        )

    def moments(self, at: datetime) -> Iterator[datetime]:
        """Moments around one in UTC at which the rule begins or ends."""
        yield from (self.since, self.until)
        if self.table.days or self.table.hours:
            midnight = datetime.combine(at.date(), time(), UTC)
            for days in (0, 1):
                yield midnight + timedelta(days=days)
            for span in self.table.hours:
                for hours, minutes in ((span[:2], span[3:5]), (span[6:8], span[9:])):
                    yield midnight + timedelta(hours=int(hours), minutes=int(minutes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A table of rules, and the fields of usage objects that prices depend on."""

    rules: tuple[Rule, ...] = ()
    known: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Billing field -> its values that are billed at the list price."""

    def __add__(self, other: "Rules") -> "Rules":
        return Rules(rules=self.rules + other.rules, known={**self.known, **other.known})

    def fields_of(self, usage_json: str | None) -> dict[str, str]:
        """The billing fields of a usage object and their values; what is no text is as JSON."""
        if not usage_json:
            return {}
        # The tier is a fact of the exchange; few usage objects have another field that counts.
        searched = usage_json.lower().replace(_TIER_KEY, "")
        if not [ending for ending in _ENDINGS if ending in searched]:
            return {}
        try:
            usage = msgspec.json.decode(usage_json)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return billing_fields(usage, self.known)

    def effect(self, case: Case, at: datetime, rates: Mapping[str, Rate]) -> "Effect":
        """What the rules for a request make of the list's rates at a moment in UTC."""
        matching = [rule for rule in self.rules if rule.matches(case)]
        active = [rule for rule in matching if rule.is_active(at)]
        names = [rule.table.name for rule in active]
        active = [rule for rule in active if not _fits(names, rule.table.unless)]
        moments = [moment for rule in matching for moment in rule.moments(at)]
        effect = Effect(
            rates=dict(rates),
            since=max((moment for moment in moments if moment <= at), default=NO_TIME[0]),
            until=min((moment for moment in moments if moment > at), default=NO_TIME[1]),
            partial=[rule.table.partial for rule in active if rule.table.partial],
        )
        if case.tier is not None and not any(rule.table.tiers for rule in active):
            effect.partial.append(f"service_tier {case.tier!r}: no price for it is known")
        for name, value in case.fields.items():
            known = self.known.get(name.rpartition(".")[2], frozenset())
            is_known = value.lower() in known or any(name in rule.table.fields for rule in active)
            if not is_known:
                effect.partial.append(f"usage.{name} {value!r}: no billing rule knows this value")
        for rule in active:
            # Else it is no price of this model.
            if effect.rates or rule.table.models or rule.table.bill:
                _set_prices(effect, rule)
        for rule in active:
            factor = 1 if rule.table.factor is None else rule.table.factor
            for line in (rule.table.lines or TOKEN_LINES) if factor != 1 else ():
                if (rate := effect.rates.get(line)) is not None:
                    source = f"{rate.source} x{factor} {rule.source}"
                    effect.rates[line] = _times(rate, Decimal(factor), source)
        return effect


@dataclass(slots=True, kw_only=True)
class Effect:
    """Rates under the rules; `since` and `until` bound the time in which no rule begins or ends."""

    rates: dict[str, Rate]
    since: datetime
    until: datetime
    partial: list[str]
    """Why the rates are only a part of the price."""
    bill: str = ""


def load(text: str) -> tuple[Rules, list[TomlProblem]]:
    """The `[[rule]]` and `[[field]]` tables of a text, and each problem."""
    document, problems = toml_tables.parse(text)
    problems += toml_tables.unknown_tables(text, document, ("rule", "field"))
    document["rule"] = [each for table in document.get("rule", ()) for each in _rows_of(table)]
    rules, wrong = of_document(text, document)
    return rules, problems + wrong


def _rows_of(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rule, or one for each of its rows."""
    columns = table.pop("columns", ())
    for row in table.pop("rows", [()]):
        rule = {key: dict(each) if isinstance(each, dict) else each for key, each in table.items()}
        for column, value in zip(columns, row, strict=True):
            key, _, inner = column.partition(".")
            if value != "" and inner:
                rule.setdefault(key, {})[inner] = value
            elif value != "":
                rule[key] = value
        yield rule


def of_document(text: str, document: Mapping[str, Any]) -> tuple[Rules, list[TomlProblem]]:
    """The rules and fields in a parsed file, and each problem."""
    tables, problems = toml_tables.converted(text, document, "rule", RuleTable)
    rules = []
    for place, table in tables:
        try:
            since, until = span_of(table.since, table.until)
            rates = dict(rates_of(table, f"rule {table.name}"))
            rules.append(Rule(table=table, since=since, until=until, rates=rates))
        except FaultError as fault:
            problems.append(toml_tables.problem_of(text, "rule", place, fault))
    fields, wrong = toml_tables.converted(text, document, "field", FieldTable)
    known = {each.name: frozenset(each.known) for _, each in fields}
    return Rules(rules=tuple(rules), known=known), problems + wrong


@cache
def published() -> Rules:
    """The rules that come with the product."""
    rules, problems = load(RULES_FILE.read_text(encoding="utf-8"))
    assert not problems, problems
    return rules


def _set_prices(effect: Effect, rule: Rule) -> None:
    table, rates = rule.table, effect.rates
    if table.free:
        reason = table.free if isinstance(table.free, str) else "free of charge"
        rates.clear()
        rates.update(dict.fromkeys((*TOKEN_LINES, "requests"), Rate(0, rule.source, note=reason)))
    rates.update(rule.rates)
    for line, multiple in table.times.items():
        factor, _, other = multiple.partition(" ")
        if line not in rates and (rate := rates.get(other)) is not None:
            rates[line] = _times(rate, Decimal(factor), f"{rate.source} x{factor} {rule.source}")
    for line in table.once:
        if line in rates:
            rates[line] = replace(rates[line], is_once=True)
    for line, units in table.at_least.items():
        if line in rates:
            rates[line] = replace(rates[line], at_least=units)
    effect.bill = table.bill or effect.bill


def _times(rate: Rate, factor: Decimal, source: str) -> Rate:
    above = tuple((start, _scaled(unit, factor)) for start, unit in rate.above)
    return replace(rate, picousd=_scaled(rate.picousd, factor), above=above, source=source)


def _scaled(picousd: int, factor: Decimal) -> int:
    """Rounded half even, once for each factor: prices have at most four digits that count."""
    return int((picousd * factor).to_integral_value())


def _fits(texts: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(text, glob) for text in texts for glob in globs)
