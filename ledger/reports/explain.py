"""Pure. Explains one exchange line by line: bytes, reported usage, cost and prices; and prices, and
the changes of repricing, as tables."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any

from ledger.maintenance.reprice import RepriceChange
from ledger.model.charge import ExchangeCost, amounts_of
from ledger.model.money import usd, usd_text
from ledger.model.usage import TOKENS
from ledger.pricing.price_lines import Rate, Sheet, is_token_line
from ledger.reports.layout import Cell, Table, TableColumn, amount_of, key_text, without_empty
from ledger.store.keys import json_value, list_of, object_of
from ledger.text.figures import MILLISECOND, count, exact_duration_text, used_share
from ledger.text.origins import shown_origin
from ledger.text.printable import printable

type Facts = Mapping[str, Any]
"""Column -> value, of one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedExchange:
    """An exchange, its readings with the current one first, its charges in order."""

    exchange: Facts
    readings: tuple[Facts, ...]
    charges: tuple[Facts, ...]
    """The current charges of the current reading."""
    past_charges: tuple[Facts, ...]
    """Superseded charges, and the charges of superseded readings."""
    duplicates: tuple[str, ...]
    """Other exchanges in which the same response was seen again."""
    quotas: tuple[Facts, ...] = ()
    """What its answer stated of limits, where a figure changed."""


def document(found: ExplainedExchange) -> dict[str, Any]:
    """All of it as a document for JSON."""
    return {
        "exchange": _members(found.exchange),
        "duplicates": list(found.duplicates),
        "billing": (found.readings[0]["billing"] if found.readings else None) or "unknown",
        "cost_usd": usd(amounts(found).cost_picousd),
        "estimated_cost_usd": usd(amounts(found).estimated_cost_picousd),
        "list_value_usd": usd(amounts(found).list_value_picousd),
        "readings": [_members(reading) for reading in found.readings],
        "charges": [_charge_members(line) for line in found.charges],
        "past_charges": [_charge_members(line) for line in found.past_charges],
        "quotas": [_members(each) for each in found.quotas],
    }


def amounts(found: ExplainedExchange) -> ExchangeCost:
    """What the exchange costs, by its current reading and charges."""
    reading = found.readings[0] if found.readings else {"usage_source": None, "billing": None}
    return amounts_of(
        reading["usage_source"],
        reading["billing"],
        ((line["amount_picousd"], line["price_source"]) for line in found.charges),
    )


def facts(found: ExplainedExchange, zone: tzinfo = UTC) -> Iterator[tuple[str, str]]:
    """The known facts of the exchange and its bytes, as heading and text; unknown facts are left
    out."""
    e = found.exchange
    yield "Exchange", e["id"]
    yield from _known("Response id", e["response_id"], "it changed" if e["id_unstable"] else "")
    yield from _known("Also seen in", ", ".join(found.duplicates))
    yield from _known("Seen again of", e["duplicate_of"], "in no total")
    if e["id_collision"]:
        yield "Id collision", "another response of this origin has the same id; both count"
    yield "Opened", _instant(e["opened_at"], zone)
    status = f"HTTP {e['http_status']}" if e["http_status"] is not None else "no answer"
    yield "Outcome", ", ".join(filter(None, (e["outcome"] or e["state"], status)))
    yield from _known(
        "Error", " ".join(filter(None, (e["error_type"], e["error_code"], e["error_message"])))
    )
    yield "Upstream", f"{e['provider']} {shown_origin(e['origin'])}{e['path']}"
    yield "Wire", f"{e['dialect']}, {'streamed' if e['streamed'] else 'not streamed'}"
    asked = e["request_model"]
    is_another = asked and asked != e["response_model"]
    yield from _known("Model", e["response_model"], f"asked for {asked}" if is_another else "")
    if not e["response_model"]:
        meant = e["meant_model"]
        why = f"asked for {asked}, which it answered last" if meant else "as asked for"
        yield from _known("Model", meant or asked, f"{why}; the answer names none")
    yield from _known("Service tier", e["service_tier"])
    yield from _known("Finish reason", e["finish_reason"])
    fingerprint = e["key_fingerprint"]
    yield from _known("Key", fingerprint and key_text(fingerprint, e["key_hint"]))
    yield from _known("Session", e["session_id"])
    yield from _known("End user", e["end_user"])
    yield from _known("Client", e["user_agent"])
    tags = object_of(e["tags"], str)
    yield from _known("Tags", ", ".join(f"{name}={value}" for name, value in tags.items()))
    times = []
    for name, heading in (
        ("first_byte_at", "first byte"),
        ("first_token_at", "first token"),
        ("settled_at", "end"),
    ):
        # A recording or log without times is written with the begin as its end.
        if e[name] is not None and (e["source"] == "live" or e[name] != e["opened_at"]):
            after = (e[name] - e["opened_at"]) // MILLISECOND
            times.append(f"{heading} after {exact_duration_text(after)}")
    yield from _known("Times", ", ".join(times))
    limits = []
    for each in found.quotas:
        used = f" {used_share(each['used_ppm'])}" if each["used_ppm"] is not None else ""
        left = f", {each['remaining']:,} left" if each["remaining"] is not None else ""
        resets = f", resets {_instant(each['resets_at'], zone)}" if each["resets_at"] else ""
        status = f" ({each['status']})" if each["status"] else ""
        limits.append(f"{each['window']}{used}{left}{resets}{status}")
    yield from _known("Limits", ", ".join(limits))
    if e["retry_after_ms"] is not None:
        yield "Asked to wait", exact_duration_text(e["retry_after_ms"])
    sizes = [
        f"{heading} {count(e[name])}"
        for name, heading in (
            ("request_bytes", "request"),
            ("response_bytes", "response"),
            ("client_bytes", "to the client"),
        )
        if e[name] is not None
    ]
    sizes += [f"{count(e['events'])} frames"] if e["events"] is not None else []
    yield from _known("Bytes", ", ".join(sizes))
    yield "Client got", _transparency(e)
    yield from _known("Degraded", e["degraded"])
    yield from _known("Capture", e["capture"])


BILLINGS = {
    "plan": "covered by a flat price: its lines are its list value, and no cost",
    "free": "nothing is billed: its lines are its list value, and no cost",
}


def reading_facts(reading: Facts, zone: tzinfo = UTC) -> Iterator[tuple[str, str]]:
    """The facts of one reading; the provider's own values verbatim."""
    about = f"revision {reading['revision']}, meter {reading['meter_version']}"
    yield "Reading", f"{reading['usage_source']}; {about}, {_instant(reading['read_at'], zone)}"
    yield from _known("  billing", reading["billing"], BILLINGS.get(reading["billing"] or "", ""))
    for name in TOKENS:
        if reading[name] is not None:
            yield f"  {name.removesuffix('_tokens').replace('_', ' ')}", count(reading[name])
    for name, units in object_of(reading["tool_units"], int).items():
        yield f"  {name.replace('_', ' ')}", count(units)
    if reading["estimated_output_tokens"] is not None:
        yield "  output seen, by estimate", count(reading["estimated_output_tokens"])
    for name in ("reported_cost_picousd", "reported_upstream_cost_picousd"):
        if reading[name] is not None:
            heading = name.removesuffix("_picousd").replace("_", " ")
            note = " (the caller's own upstream key)" if reading["is_byok"] else ""
            yield f"  {heading}", f"${usd_text(reading[name])}{note}"
    for remark in list_of(reading["remarks"], str):
        yield "  remark", str(remark)
    yield from _known("  why again", reading["reason"])
    yield from _known("  usage, verbatim", reading["usage_json"])


def charge_table(lines: tuple[Facts, ...]) -> Table:
    """Quantity x unit = amount, and the source of each price. A source that all prices share is in
    `charge_title` instead."""
    common = common_source(line["price_source"] for line in lines)
    rows = []
    for line in lines:
        unit = line["unit_picousd"]
        priced: tuple[Cell, ...] = ("unpriced", None, None)
        if unit is not None and is_token_line(line["line"]):
            priced = (Decimal(usd_text(unit * 10**6)), "1M tokens", usd(line["amount_picousd"]))
        elif unit is not None:
            priced = (usd(unit), "1", usd(line["amount_picousd"]))
        name = line["line"] + (f" ({line['model']})" if line["model"] else "")
        source = "" if unit is None or common else line["price_source"]
        reason = "; ".join(filter(None, (source, line["reason"])))
        rows.append((name, line["quantity"], *priced, reason))
    known = [line["amount_picousd"] for line in lines if line["amount_picousd"] is not None]
    total: list[Cell] = ["Total", "", "", "", usd(sum(known)) if known else None, ""]
    return without_empty(
        Table(
            columns=(
                TableColumn(name="line", heading="Line", is_number=False),
                TableColumn(name="quantity", heading="Quantity"),
                TableColumn(name="unit_usd", heading="Unit, USD"),
                TableColumn(name="per", heading="per", is_number=False),
                TableColumn(name="amount_usd", heading="Amount, USD"),
                TableColumn(name="price_source", heading="Price from", is_number=False, wraps=True),
            ),
            rows=tuple(rows),
            total=tuple(total),
        ),
        "price_source",
    )


def charge_title(lines: tuple[Facts, ...]) -> str:
    """The title of the charges, with the source that all prices share, if any."""
    common = common_source(line["price_source"] for line in lines)
    return f"Prices from {common}" if common else ""


def common_source(sources: Iterable[str]) -> str:
    """The source that all prices have; empty if they differ."""
    known = set(sources)
    return known.pop() if len(known) == 1 else ""


def _charge_members(line: Facts) -> dict[str, Any]:
    return {
        **_members(line),
        "unit_usd": usd(line["unit_picousd"]),
        "amount_usd": usd(line["amount_picousd"]),
    }


def _members(row: Facts) -> dict[str, Any]:
    members = dict(row)
    for name, value in row.items():
        if isinstance(value, datetime):
            members[name] = value.isoformat()
        elif isinstance(value, str) and name in ("tags", "tool_units", "further", "remarks"):
            members[name] = json_value(value)
    return members


def _known(heading: str, text: str | None, note: str = "") -> Iterator[tuple[str, str]]:
    if text:
        yield heading, f"{text} ({note})" if note else text


def _instant(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f" {zone}"


def _transparency(exchange: Facts) -> str:
    """The changes on the wire, and the digest that proves that nothing else changed."""
    asked = {None: "", True: "; it asked for usage", False: "; it asked for no usage"}
    asking = asked[exchange["usage_asked"]]
    if exchange["usage_injected"]:
        asking += "; we asked for usage"
    if exchange["resent"]:
        asking += ", upstream refused that and was asked again without"
    if exchange["removed_bytes"]:
        removed = count(exchange["removed_bytes"])
        return f"what upstream sent, less {removed} bytes of the usage that we asked for{asking}"
    digest = exchange["upstream_digest"]
    if digest is None:
        return f"not recorded{asking}"
    if digest == exchange["client_digest"]:
        return f"what upstream sent, to the byte (SHA-256 {digest[:12]}…){asking}"
    return f"part of what upstream sent{asking}"


def sheet_table(sheet: Sheet) -> Table:
    """Each line of a sheet: its price, its price in long contexts, its source. A source that all
    lines share is in `sheet_title` instead."""
    rates = _rates(sheet)
    common = common_source(rate.source for rate in rates.values())
    rows = []
    for line, rate in rates.items():
        scale, per = (10**6, "1M tokens") if is_token_line(line) else (1, "1")
        price = None if rate.is_unknown else Decimal(usd_text(rate.picousd * scale))
        above = ", ".join(
            f"above {start:,} tokens {usd_text(picousd * scale)}" for start, picousd in rate.above
        )
        source = "; ".join(part for part in ("" if common else rate.source, rate.note) if part)
        rows.append((line, price, per, above, source))
    table = Table(
        columns=(
            TableColumn(name="line", heading="Line", is_number=False),
            TableColumn(name="usd", heading="USD"),
            TableColumn(name="per", heading="per", is_number=False),
            TableColumn(name="above", heading="Longer inputs", is_number=False),
            TableColumn(name="source", heading="Price from", is_number=False, wraps=True),
        ),
        rows=tuple(rows),
    )
    return without_empty(without_empty(table, "above"), "source")


def sheet_title(sheet: Sheet, model: str, at: datetime) -> str:
    """The title of the prices, with the source that all share, if any."""
    common = common_source(rate.source for rate in _rates(sheet).values())
    of = f"Prices of {printable(model)} at {at:%Y-%m-%d %H:%M} UTC"
    return f"{of}, from {common}" if common else of


def difference(changes: Mapping[str | None, RepriceChange]) -> Table:
    """The changes of repricing by model, the largest first."""
    total = sum(changes.values(), RepriceChange())
    by_size = sorted(
        changes.items(), key=lambda item: (-abs(_difference(item[1]) or 0), item[0] or "")
    )
    names = ("Model", "Requests", "Lines", "Before", "After", "Difference")
    return Table(
        columns=tuple(
            TableColumn(name=name, heading=name, is_number=name != "Model") for name in names
        ),
        rows=tuple((model or "(none)", *_cells(change)) for model, change in by_size),
        total=("Total", *_cells(total)),
    )


def _rates(sheet: Sheet) -> Mapping[str, Rate]:
    return sheet.rates if sheet.rest is None else {**sheet.rates, "every other line": sheet.rest}


def _cells(change: RepriceChange) -> Iterator[Cell]:
    yield change.requests
    yield change.lines
    yield amount_of(change.before_picousd) or "unpriced"
    yield amount_of(change.after_picousd) or "unpriced"
    yield amount_of(_difference(change))


def _difference(change: RepriceChange) -> int | None:
    if change.before_picousd is None and change.after_picousd is None:
        return None
    return (change.after_picousd or 0) - (change.before_picousd or 0)
