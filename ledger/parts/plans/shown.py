"""Database. What plans add to a page, to `top` and to the status line: their limits, and what a
percent of each bought."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from ledger.parts.plans import limits, limits_text
from ledger.parts.plans.limit_values import limit_values
from ledger.parts.plans.percent_picture import Picture, pictures
from ledger.reports.page_parts import PageSection
from ledger.settings.names import Names
from ledger.text.figures import used_share

HERE = Path(__file__).parent


def percent_pictures(engine: Engine, now: datetime) -> list[Picture]:
    """What a percent bought, of each limit for which it is known."""
    values = limit_values(engine, now)
    return pictures(values, [[*limits_text.value_notes([each])] for each in values])


def _limits(engine: Engine, _: Names, now: datetime) -> Mapping[str, Any]:
    return {
        "found": limits.limits(engine, now),
        "now": now,
        "limit_used": used_share,
        "limits_method": limits_text.FULL_AT_METHOD.capitalize(),
    }


def _value(engine: Engine, _: Names, now: datetime) -> Mapping[str, Any]:
    return {"pictures": percent_pictures(engine, now)}


LIMITS = PageSection(
    name="limits",
    template=HERE / "limits_section.html",
    has_any=limits.has_any,
    values=_limits,
)
VALUE = PageSection(
    name="value", template=HERE / "value_section.html", has_any=limits.has_any, values=_value
)


def lines_of_top(engine: Engine, now: datetime) -> list[str]:
    """How much of plans is used, in a line."""
    plans = [each for each in limits.limits(engine, now) if each.kind == "plan"]
    return [f"limits: {limits_text.one_line(plans, now)}"] if plans else []


def words_of_statusline(engine: Engine, now: datetime) -> list[str]:
    """The same, a text for each window."""
    return limits_text.windows_left(limits.limits(engine, now, are_shared=False), now)
