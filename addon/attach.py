"""Edge. What parts of both sides attach to the core of the addon."""

from typing import Any

from addon import parts
from ledger import attach
from ledger import parts as ledger_parts

PARTS = (*ledger_parts.PARTS, *parts.PARTS)


def attached(point: str) -> list[Any]:
    """What the parts that are there attach to a point, in the order of the tables."""
    return attach.attached(point, PARTS)
