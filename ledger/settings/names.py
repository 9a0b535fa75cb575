"""Pure. The names file, and the name of a request.

    [[name]]                      # read from top to bottom; the first entry that matches and has
    key = "3f2a9c81"              # a word decides it
    name = "CI runner"            # what the key is called
    team = "search"
    person = "Ada"
    cost_centre = "4711"
    from = 2026-09-01             # in force from this day (UTC) ...
    until = 2027-01-01            # ... up to, not including, this one

    [[name]]
    tag = "team=growth*"
    team = "growth"

    [[plan]]                      # a flat price, and what it covers; the first that matches counts
    name = "Claude Max"
    usd_per_month = 200
    key_hint = "1a2b"             # any of key, key_hint, host, agent
    from = 2026-09-01

A plan says how requests are billed that the wire does not tell, or tells otherwise: as `plan`, or
with `billing = "free"` or `"metered"`. It is applied when a request is recorded, and to recorded
ones by `tokentee rebuild`.

An entry matches if all of its conditions match: `key` (a fingerprint, or its first characters),
`key_hint` (the last characters of the key), `host`, `tag` (`NAME=VALUE`), `session`, `project`. `*`
and `?` stand for any characters. A list means any of its values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fnmatch import translate
from functools import lru_cache
from re import Pattern
from re import compile as compiled

import msgspec

from ledger.model.exchange import Billing, Exchange
from ledger.settings import toml_tables
from ledger.settings.toml_tables import FaultError, TomlProblem
from ledger.text.origins import host_of

WORDS = ("team", "person", "cost_centre")
"""The dimensions that the names file adds to reports."""
KEY_CHARACTERS_MIN = 6
"""Fewer characters of a fingerprint match too many keys."""
NAME_ENTRIES_MAX = 10_000
"""Far more than an operator writes by hand; every group of a query is matched with all of them."""
PATTERNS_CACHED = 4_096

type Texts = str | list[str] | None


class NameEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"since": "from"}
):
    """One `[[name]]`."""

    key: Texts = None
    key_hint: Texts = None
    host: Texts = None
    tag: Texts = None
    session: Texts = None
    project: Texts = None
    since: date | None = None
    until: date | None = None
    name: str | None = None
    team: str | None = None
    person: str | None = None
    cost_centre: str | None = None

    def __post_init__(self) -> None:
        """FaultError if the entry matches nothing, gives no name, or is never in force."""
        fields = {word: getattr(self, word) for word in (*FACTS, "name", *WORDS)}
        _check(self, fields)
        if not any(fields[word] for word in FACTS):
            raise FaultError("name", f"one of {', '.join(FACTS)} must say what is named")
        if not any(fields[word] for word in ("name", *WORDS)):
            raise FaultError("name", "give a name, team, person or cost_centre")
        if self.name and not (self.key or self.key_hint):
            raise FaultError("name", "it is the name of a key; give key or key_hint beside it")
        for word in texts(self.key):
            if len(word.rstrip("*")) < KEY_CHARACTERS_MIN:
                raise FaultError("key", f"{word!r} is too short; {KEY_CHARACTERS_MIN} characters")
        for word in texts(self.tag):
            if not word.partition("=")[1]:
                raise FaultError("tag", f"{word!r} is not NAME=VALUE")


class PlanEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"since": "from"}
):
    """One `[[plan]]`."""

    name: str
    usd_per_month: Decimal | int | None = None
    """None: its price is not known."""
    key: Texts = None
    key_hint: Texts = None
    host: Texts = None
    agent: Texts = None
    since: date | None = None
    until: date | None = None
    billing: Billing = Billing.PLAN

    def __post_init__(self) -> None:
        """FaultError if the plan has no name, matches nothing, costs no amount, or is never in
        force."""
        if not self.name:
            raise FaultError("name", "empty")
        facts = {word: getattr(self, word) for word in ("key", "key_hint", "host", "agent")}
        if not any(map(texts, facts.values())):
            raise FaultError("plan", f"one of {', '.join(facts)} must say what it covers")
        _check(self, facts)
        price = self.usd_per_month
        if price is not None and not (
            Decimal(price).is_finite() and 0 <= price <= USD_PER_MONTH_MAX
        ):
            raise FaultError("usd_per_month", f"{price} is not an amount")

    def covers(self, facts: "GroupFacts") -> bool:
        """Whether the plan is in force for these requests."""
        return (
            _in_force(self, facts.day)
            and _fits_key(self, facts.key, facts.key_hint)
            and is_host(self.host, facts.host)
            and _any(self.agent, facts.agent)
        )


USD_PER_MONTH_MAX = 10**9
FACTS = ("key", "key_hint", "host", "tag", "session", "project")
"""The facts that an entry can match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The facts of the requests of one group."""

    key: str | None = None
    key_hint: str | None = None
    host: str | None = None
    tags: Mapping[str, str | None] = field(default_factory=dict)
    session: str | None = None
    project: str | None = None
    agent: str | None = None
    """Of plans alone."""
    day: date | None = None
    """Any day of the group: no date of the file separates its days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names file."""

    entries: tuple[NameEntry, ...] = ()
    plans: tuple[PlanEntry, ...] = ()

    def plan_of(self, facts: "GroupFacts") -> PlanEntry | None:
        """The plan that covers these requests, or says how else they are billed."""
        return next((plan for plan in self.plans if plan.covers(facts)), None)

    def billing_of(self, exchange: Exchange) -> Billing | None:
        """How the operator says that an exchange is billed; None: nothing is said of it."""
        if not self.plans:
            return None
        facts = GroupFacts(
            key=exchange.key_fingerprint,
            key_hint=exchange.key_hint,
            host=host_of(exchange.origin),
            agent=exchange.agent,
            day=exchange.opened_at.astimezone(UTC).date(),
        )
        plan = self.plan_of(facts)
        return None if plan is None else plan.billing

    def word_of(self, word: str, facts: GroupFacts) -> str | None:
        """The `team`, `person`, `cost_centre` or `name` of requests; None: they have none. Where
        no entry gives a word of `WORDS`, the tag of the same name does."""
        for entry in self.entries:
            value: str | None = getattr(entry, word)
            if value is not None and fits(entry, facts):
                return value
        return facts.tags.get(word) if word in WORDS else None

    def key_name(self, key: str, hint: str | None) -> str | None:
        """The current name of a key: from the first entry for it that has a name."""
        for entry in self.entries:
            by_key_alone = not (entry.host or entry.tag or entry.session or entry.project)
            if entry.name and by_key_alone and _fits_key(entry, key, hint):
                return entry.name
        return None

    def facts_of(self, words: tuple[str, ...]) -> frozenset[str]:
        """The facts that decide these words, so that queries read only those."""
        entries = self.for_words(words)
        facts = {fact for fact in FACTS for entry in entries if getattr(entry, fact)}
        return frozenset(facts | {"tag"} if {*words} & {*WORDS} else facts)

    def for_words(self, words: tuple[str, ...]) -> tuple[NameEntry, ...]:
        """The entries that give one of these words."""
        return tuple(each for each in self.entries if any(getattr(each, word) for word in words))

    def tags_of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the tags that decide these words."""
        pairs = (tag for each in self.for_words(words) for tag in texts(each.tag))
        of_entries = (pair.partition("=")[0] for pair in pairs)
        return tuple(dict.fromkeys((*of_entries, *(word for word in words if word in WORDS))))

    def boundaries(self, words: tuple[str, ...]) -> tuple[datetime, ...]:
        """The moments at which a name may change, in order."""
        entries = self.for_words(words)
        days = {day for each in entries for day in (each.since, each.until) if day}
        return tuple(datetime.combine(day, time(), UTC) for day in sorted(days))


NO_NAMES = Names()


def read(text: str) -> tuple[Names, list[TomlProblem]]:
    """The valid names of a TOML text, and each problem."""
    document, problems = toml_tables.parse(text)
    problems += toml_tables.unknown_tables(text, document, ("name", "plan"))
    entries, wrong = toml_tables.converted(text, document, "name", NameEntry)
    plans, wrong_plans = toml_tables.converted(text, document, "plan", PlanEntry)
    problems += [*wrong, *wrong_plans]
    if len(entries) + len(plans) > NAME_ENTRIES_MAX:
        problems.append(
            TomlProblem(line=None, text=f"more than {NAME_ENTRIES_MAX} names and plans")
        )
    # An entry after an equal one that gives the same words is a mistake.
    seen: dict[tuple[object, ...], int] = {}
    for place, entry in entries:
        facts = tuple(texts(getattr(entry, fact)) for fact in FACTS)
        for word in ("name", *WORDS):
            if getattr(entry, word) is None:
                continue
            same = (*facts, entry.since, entry.until, word)
            if same in seen:
                fault = FaultError(word, f"entry {seen[same] + 1} gives it already")
                problems.append(toml_tables.problem_of(text, "name", place, fault))
            seen.setdefault(same, place)
    return Names(
        entries=tuple(entry for _, entry in entries[:NAME_ENTRIES_MAX]),
        plans=tuple(plan for _, plan in plans[:NAME_ENTRIES_MAX]),
    ), problems


def fits(entry: NameEntry, facts: GroupFacts) -> bool:
    """Whether all conditions of the entry match."""
    return (
        _in_force(entry, facts.day)
        and _fits_key(entry, facts.key, facts.key_hint)
        and is_host(entry.host, facts.host)
        and _any(entry.session, facts.session)
        and _any(entry.project, facts.project)
        and (
            not entry.tag
            or any(
                _any(value, facts.tags.get(name))
                for name, _, value in (each.partition("=") for each in texts(entry.tag))
            )
        )
    )


def is_host(wanted: Texts, host: str | None) -> bool:
    """Whether a host is one of these globs, however they are spelled; None: any is."""
    return _any([*host_globs(wanted)], host)


def host_globs(wanted: Texts) -> tuple[str, ...]:
    """Hosts in the spelling of `host_of`."""
    return tuple(each.lower().rstrip(".") for each in texts(wanted))


def texts(value: Texts) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


@lru_cache(maxsize=PATTERNS_CACHED)
def pattern(glob: str) -> Pattern[str]:
    """A glob with `*` and `?`; brackets are literal."""
    return compiled(translate(glob.replace("[", "[[]")))


def _check(entry: "NameEntry | PlanEntry", fields: Mapping[str, Texts]) -> None:
    """FaultError if one of these fields is empty, or the entry is never in force."""
    for word, value in fields.items():
        if value is not None and not (texts(value) and all(texts(value))):
            raise FaultError(word, "empty")
    if entry.since and entry.until and entry.until <= entry.since:
        raise FaultError("until", "it is not after from")


def _fits_key(entry: "NameEntry | PlanEntry", key: str | None, hint: str | None) -> bool:
    if entry.key and not any((key or "").startswith(each.rstrip("*")) for each in texts(entry.key)):
        return False
    hints = [each.lstrip("….") for each in texts(entry.key_hint)]
    return not hints or hint in hints


def _any(globs: Texts, value: str | None) -> bool:
    if not globs:
        return True
    return value is not None and any(pattern(glob).match(value) for glob in texts(globs))


def _in_force(entry: "NameEntry | PlanEntry", day: date | None) -> bool:
    if not (entry.since or entry.until):
        return True
    return day is not None and (entry.since or date.min) <= day < (entry.until or date.max)
