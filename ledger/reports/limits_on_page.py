"""Database. What plans add to a page: their limits, and what a percent of each bought."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from ledger.figures import limits
from ledger.figures.limit_values import limit_values
from ledger.figures.percent_picture import Picture, pictures
from ledger.reports import limits_text
from ledger.reports.page_parts import PageSection
from ledger.settings.names import Names

HERE = Path(__file__).parent


def percent_pictures(engine: Engine, now: datetime) -> list[Picture]:
    """What a percent bought, of each limit for which it is known."""
    values = limit_values(engine, now)
    return pictures(values, [[*limits_text.value_notes([each])] for each in values])


def _limits(engine: Engine, _: Names, now: datetime) -> Mapping[str, Any]:
    return {
        "found": limits.limits(engine, now),
        "now": now,
        "limit_used": limits_text.used_share,
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
