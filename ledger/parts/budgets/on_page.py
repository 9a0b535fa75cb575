"""Database. What budgets and caps add to a page: their cards, a line for each budget that is
near or over its limit, and the limits in the chart of spending."""

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from ledger.parts.budgets import budgets_file, status
from ledger.parts.budgets.status import Status
from ledger.reports.page_parts import PageSection, Problem
from ledger.settings.names import Names
from ledger.text import figures
from ledger.text.period import zone_in
from ledger.text.printable import short_text

HERE = Path(__file__).parent


def problems(engine: Engine, names: Names, now: datetime, option: str) -> list[Problem]:
    """A line for each budget that is not well within its limit."""
    budgets = budgets_file.load(None).budgets
    return problems_of(status.statuses(engine, budgets, names, now), now, option)


def problems_of(statuses: Iterable[Status], now: datetime, option: str) -> list[Problem]:
    """The lines of budgets in this state."""
    found = []
    for each in statuses:
        if each.state == "ok" or each.span is None:
            continue
        forecast = each.forecast_picousd
        soon = f", ~{figures.money(forecast)} at its end at this rate" if forecast else ""
        narrowed = "".join(
            f" --only {shlex.quote(f'{word}={value}')}" for word, value in each.cap.only()
        )
        page_zone = str(zone_in(now))
        zone = each.cap.timezone or page_zone
        days = "" if zone == page_zone == "UTC" else f" --timezone {zone}"
        found.append(
            Problem(
                kind="budget",
                level="bad" if each.is_over else "look",
                count=1,
                headline=f"Budget {short_text(each.cap.name)} is {each.state}: "
                f"{figures.money(each.spent_picousd)} of "
                f"{figures.money(each.limit_picousd)}",
                advice=f"{figures.percent((each.used_percent or Decimal(0)) / 100)} of "
                f"{each.period_text}{soon}",
                command=f"tokentee report --by key,model --since {each.span.start:%Y-%m-%d}"
                f"{narrowed}{days}{option}",
            )
        )
    return found


def levels(engine: Engine, names: Names, now: datetime) -> list[tuple[str, Fraction]]:
    """What a day may cost by each budget of everything, and what it costs at the present pace of
    the budget's period, in pico-USD."""
    found = []
    for each in status.statuses(engine, budgets_file.load(None).budgets, names, now):
        if each.cap.only() or each.span is None:
            continue
        hours = round((each.span.end - each.span.start).total_seconds() / 3600)
        name = short_text(each.cap.name)
        for text, picousd in (
            (f"budget {name}", each.limit_picousd),
            (f"at this pace ({name})", each.forecast_picousd),
        ):
            if picousd is not None:
                found.append((text, picousd / Fraction(hours, 24)))
    return found


def _budgets(engine: Engine, names: Names, now: datetime) -> Mapping[str, Any]:
    found = status.statuses(engine, budgets_file.load(None).budgets, names, now)
    return {"statuses": found, "notes": status.notes(found)}


def _caps(engine: Engine, names: Names, now: datetime) -> Mapping[str, Any]:
    caps = budgets_file.load(None).caps
    return {"table": status.caps_table(status.statuses(engine, caps, names, now))}


BUDGETS = PageSection(
    name="budgets",
    template=HERE / "budgets_section.html",
    has_any=lambda _: bool(budgets_file.load(None).budgets),
    values=_budgets,
)
CAPS = PageSection(
    name="caps",
    template=HERE / "caps_section.html",
    has_any=lambda _: bool(budgets_file.load(None).caps),
    values=_caps,
)
