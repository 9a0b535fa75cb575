"""Edge. What parts of both sides attach to the core of the addon."""

from typing import Any

from addon import parts
from ledger import attach
from ledger import parts as ledger_parts
from ledger.model.errors import LedgerError

PARTS = (*ledger_parts.PARTS, *parts.PARTS)


def attached(point: str) -> list[Any]:
    """What the parts that are there attach to a point, in the order of the tables."""
    return attach.attached(point, PARTS)


def required(point: str, *, option: str) -> Any:
    """What one part attaches to a point. LedgerError, which names the option that wants it, if that
    part is not there."""
    if found := attached(point):
        return found[0]
    packages = (part.package for part in PARTS if any(at == point for at, _ in part.attaches))
    raise LedgerError(f"{option}: {', '.join(packages) or 'its part'} is not there")
