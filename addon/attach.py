"""Edge. What parts of both sides attach to the core of the addon."""

from functools import cache
from typing import Any

from addon import parts
from ledger import attach
from ledger import parts as ledger_parts

PARTS = (*ledger_parts.PARTS, *parts.PARTS)


def attached(point: str) -> list[Any]:
    """What the parts that are there attach to a point, in the order of the tables."""
    return attach.attached(point, PARTS)


@cache
def options_of_parts() -> tuple[dict[str, Any], dict[str, str]]:
    """The options of the proxy that parts have; and those of parts that are not there -> what is
    missing for them."""
    there: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for part in PARTS:
        lacking = attach.missing_for(part)
        for name, place in part.options:
            if lacking:
                missing[name] = ", ".join(lacking)
            else:
                module, attribute = place.split(":")
                there[name] = attach.loaded(f"{part.package}.{module}", attribute)
    return there, missing
