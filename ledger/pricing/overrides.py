"""Edge. The operator's own prices: the file behind `tee_prices`, read once and checked whole.

    litellm = "model_prices_and_context_window.json"    # a second source; beside this file

    [[price]]                       # a later entry wins over an earlier one, line by line
    host = "llm.example.com"        # globs; at least one of host, provider and model
    model = "gpt-5*"
    from = 2026-09-01               # in force from this moment (a date: midnight UTC)
    until = 2027-01-01              # up to, not including
    service_tier = "flex"           # absent: the standard tier; "*": every tier
    usd_per_mtok = { uncached_input = 1.10, cache_read = 0.11, output = 8.80 }
    usd_each = { web_searches = 0.01 }

    [[price.above]]                 # a request with more input pays these for all its tokens
    input_tokens = 272_000
    usd_per_mtok = { uncached_input = 2.20, output = 13.20 }

    [[price]]
    host = "localhost"
    free = true

    [[gateway]]                     # where a host's prices stand, and what it calls the models
    host = "llm.example.com"
    prices = "openai"               # a list's id, or "vendor"
    models = { big = "gpt-5" }

Figures are read as decimals, never as floats; every name is checked, because a misspelt line would
be a silent wrong price.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ledger.model.errors import LedgerError
from ledger.model.money import AMOUNT_MAX
from ledger.pricing.litellm import LiteLLM
from ledger.pricing.price_lines import NO_TIME, TOKEN_LINES, Rate
from ledger.pricing.price_lists import Gateway, Question
from ledger.pricing.published import MTOK, is_standard, picousd_of_price

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Far more than anybody writes by hand; a wrong path to a dump is noticed before it is parsed."""

_UNIT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `[[price]]`."""

    host: str
    provider: str
    model: str
    tier: str | None
    """None: the standard tier."""
    since: datetime
    until: datetime
    is_free: bool
    rates: Mapping[str, Rate]

    def speaks_of(self, question: Question, tier: str | None) -> bool:
        """For this host, provider, model and tier, at some time."""
        return (
            fnmatchcase(question.host, self.host)
            and fnmatchcase(question.provider.lower(), self.provider)
            and fnmatchcase((question.model or "").lower(), self.model)
            and (is_standard(tier) if self.tier is None else _matches_tier(tier, self.tier))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """One override file."""

    entries: tuple[Entry, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    litellm: LiteLLM | None = None
    digest: str = ""


NO_OVERRIDES = Overrides()


class FaultError(Exception):
    """What is wrong in the file, and where."""


def load(path: str) -> Overrides:
    """The file, or a LedgerError that names its first problem."""
    overrides, problems = check(path)
    if problems:
        more = f" (and {len(problems) - 1} more: tokentee prices check)" if problems[1:] else ""
        raise LedgerError(f"{path}: {problems[0]}{more}")
    return overrides


def check(path: str) -> tuple[Overrides, list[str]]:
    """The file as far as it is sound, and each problem in one line."""
    try:
        data = _read(Path(path))
    except OSError as error:
        raise LedgerError(f"cannot read the price file {path}: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return NO_OVERRIDES, [f"not TOML: {error}"]
    digest = hashlib.sha256(data).hexdigest()[:12]
    source = f"override sha256:{digest}"
    problems: list[str] = []
    entries: list[Entry] = []
    gateways: list[Gateway] = []
    litellm = None
    problems += [
        f"{key}: unknown; a price file has [[price]], [[gateway]] and litellm"
        for key in document
        if key not in {"price", "gateway", "litellm"}
    ]
    for index, table in enumerate(_tables(document, "price", problems)):
        try:
            entries.append(_entry(table, source))
        except FaultError as fault:
            problems.append(_where(text, "price", index, fault))
    for index, table in enumerate(_tables(document, "gateway", problems)):
        try:
            gateways.append(_gateway(table))
        except FaultError as fault:
            problems.append(_where(text, "gateway", index, fault))
    if "litellm" in document:
        try:
            litellm = _litellm(document["litellm"], Path(path).parent)
        except FaultError as fault:
            problems.append(str(fault))
    return (
        Overrides(entries=tuple(entries), gateways=tuple(gateways), litellm=litellm, digest=digest),
        problems,
    )


def in_force(
    entries: tuple[Entry, ...], at: datetime
) -> tuple[dict[str, Rate], Rate | None, datetime, datetime]:
    """What entries for one question say at a moment: rates, the price of every other line, and
    the span around it in which nothing changes."""
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
            if entry.is_free:
                rates, rest = {}, next(iter(entry.rates.values()))
            else:
                rates.update(entry.rates)
    return rates, rest, since, until


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise LedgerError(f"{path}: not a price file, it is larger than {FILE_BYTES_MAX} bytes")
    return data


def _tables(document: dict[str, Any], name: str, problems: list[str]) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
        return tables
    problems.append(f"{name}: write [[{name}]] for each")
    return []


def _entry(table: dict[str, Any], source: str) -> Entry:
    known = {"host", "provider", "model", "from", "until", "service_tier", "free"}
    known |= {"usd_per_mtok", "usd_each", "above"}
    _refuse_unknown(table, known)
    if not table.keys() & {"host", "provider", "model"}:
        raise FaultError("host, provider or model: one of them must say what the price is for")
    is_free = table.get("free", False)
    if not isinstance(is_free, bool):
        raise FaultError(f"free: {is_free!r} is not true or false")
    rates = dict(_rates(table, source))
    if is_free and rates:
        raise FaultError("free: a free entry has no prices beside")
    if not is_free and not rates:
        raise FaultError("usd_per_mtok or usd_each: the entry has no price; free = true for none")
    since = _moment(table, "from", NO_TIME[0])
    until = _moment(table, "until", NO_TIME[1])
    if until <= since:
        raise FaultError("until: it is not after from")
    tier = _text(table, "service_tier", "*" if is_free else None)
    return Entry(
        host=(_text(table, "host", "*") or "*").lower(),
        provider=(_text(table, "provider", "*") or "*").lower(),
        model=(_text(table, "model", "*") or "*").lower(),
        tier=None if tier is not None and is_standard(tier) else tier,
        since=since,
        until=until,
        is_free=is_free,
        rates={"free": Rate(0, source, note="declared free")} if is_free else rates,
    )


def _rates(table: dict[str, Any], source: str) -> Iterator[tuple[str, Rate]]:
    above: dict[str, list[tuple[int, int]]] = {}
    steps = table.get("above", [])
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise FaultError("above: write [[price.above]] for each")
    for step in steps:
        _refuse_unknown(step, {"input_tokens", "usd_per_mtok"}, "above.")
        start = step.get("input_tokens")
        if type(start) is not int or start < 0:
            raise FaultError(f"above.input_tokens: {start!r} is not a number of tokens")
        for line, picousd in _prices(step, "usd_per_mtok", "above."):
            above.setdefault(line, []).append((start, picousd))
    for line, picousd in _prices(table, "usd_per_mtok"):
        yield line, Rate(picousd, source, tuple(sorted(above.pop(line, []))))
    if above:
        raise FaultError(f"above.usd_per_mtok.{next(iter(above))}: it has no price below")
    for line, picousd in _prices(table, "usd_each"):
        yield line, Rate(picousd, source)


def _prices(table: dict[str, Any], key: str, within: str = "") -> Iterator[tuple[str, int]]:
    prices = table.get(key, {})
    if not isinstance(prices, dict):
        raise FaultError(f"{within}{key}: write {key} = {{ line = price }}")
    for line, value in prices.items():
        where = f"{within}{key}.{line}"
        if key == "usd_per_mtok" and line not in TOKEN_LINES:
            raise FaultError(f"{where}: unknown line; one of {', '.join(TOKEN_LINES)}")
        if key == "usd_each" and (line in TOKEN_LINES or not _UNIT_NAME.fullmatch(line)):
            raise FaultError(f"{where}: not a unit; token lines stand in usd_per_mtok")
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise FaultError(f"{where}: {value!r} is not a number")
        price = Decimal(value)
        if not price.is_finite() or price < 0:
            raise FaultError(f"{where}: {value} is not a price")
        if price > AMOUNT_MAX:
            raise FaultError(f"{where}: {value} is more than the ledger holds")
        yield line, picousd_of_price(price, MTOK if key == "usd_per_mtok" else 1)


def _gateway(table: dict[str, Any]) -> Gateway:
    _refuse_unknown(table, {"host", "prices", "models"})
    host, prices = _text(table, "host", None), _text(table, "prices", None)
    if host is None or prices is None:
        raise FaultError(f"{'prices' if host else 'host'}: missing")
    models = table.get("models", {})
    if not isinstance(models, dict) or not all(isinstance(name, str) for name in models.values()):
        raise FaultError('models: write models = { "name on the wire" = "name in the list" }')
    return Gateway(host=host.lower(), prices=prices, models=models)


def _litellm(value: object, folder: Path) -> LiteLLM:
    if not isinstance(value, str) or not value:
        raise FaultError(f"litellm: {value!r} is not a path")
    try:
        return LiteLLM.load(folder / value)
    except LedgerError as error:
        raise FaultError(f"litellm: {error}") from None


def _refuse_unknown(table: dict[str, Any], known: set[str], within: str = "") -> None:
    for key in table:
        if key not in known:
            raise FaultError(f"{within}{key}: unknown; one of {', '.join(sorted(known))}")


def _text(table: dict[str, Any], key: str, default: str | None) -> str | None:
    value = table.get(key, default)
    if value is not None and (not isinstance(value, str) or not value):
        raise FaultError(f"{key}: {value!r} is not text")
    return value


def _moment(table: dict[str, Any], key: str, default: datetime) -> datetime:
    value = table.get(key, default)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise FaultError(f"{key}: {value} has no offset; write {value.isoformat()}Z for UTC")
        return value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise FaultError(f"{key}: {value!r} is not a date, write {key} = 2026-09-01")


def _matches_tier(tier: str | None, pattern: str) -> bool:
    return pattern == "*" or (tier or "").lower() == pattern.lower()


def _where(text: str, table: str, index: int, fault: FaultError) -> str:
    """The problem and the line it is in: tomllib keeps no positions, so the header is counted and
    the key looked for below it; where that fails, the header's line is near enough."""
    message = str(fault)
    key = message.partition(":")[0].rpartition(".")[2]
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _is_header(line, table)]
    if index >= len(headers):
        return f"{table} {index + 1}: {message}"
    start = headers[index]
    end = next((number for number in headers if number > start), len(lines))
    mention = re.compile(rf"(^|[\s{{,.\"'])({re.escape(key)})[\"']?\s*=")
    number = next((n for n in range(start, end) if mention.search(lines[n])), start)
    return f"line {number + 1}: {table} {index + 1}: {message}"


def _is_header(line: str, table: str) -> bool:
    return re.match(rf"\s*\[\[\s*{table}\s*\]\]", line) is not None
