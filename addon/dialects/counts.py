"""Pure. Reading counts, amounts and keys out of a usage object that nobody vouches for."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ledger.money import picousd_of
from ledger.usage import count_of


class Counts:
    """One pass over a usage object: what can be a count is one, the rest becomes a remark."""

    __slots__ = ("_usage", "remarks")

    def __init__(self, usage: Mapping[str, Any]) -> None:
        self._usage = usage
        self.remarks: list[str] = []

    def first(self, *paths: str) -> int | None:
        """The first of these that is reported; `a.b` is key b of the object at a."""
        for path in paths:
            count = self._at(path)
            if count is not None:
                return count
        return None

    def picousd(self, *paths: str) -> int | None:
        """The first of these amounts of USD that is reported."""
        for path in paths:
            value = lookup(self._usage, path)
            if value is None:
                continue
            amount = picousd_of(value)
            if amount is not None:
                return amount
            self._remark(path, value, "is no amount")
        return None

    def milliseconds(self, *paths: str) -> int | None:
        """The first of these durations, which the wire gives in seconds."""
        for path in paths:
            value = lookup(self._usage, path)
            if value is None:
                continue
            if isinstance(value, int | float) and 0 <= value < 10**9 and value is not True:
                return int(Decimal(str(value)).scaleb(3).to_integral_value())
            self._remark(path, value, "is no duration")
        return None

    def units(self, **paths: str | tuple[str, ...]) -> dict[str, int]:
        """The units reported under these paths, by the ledger's name for them; zeros left out.

        A tool that ran zero times is in `usage_json`; here it would only make noise in reports.
        """
        found: dict[str, int] = {}
        for name, path in paths.items():
            count = self.first(*((path,) if isinstance(path, str) else path))
            if count:
                found[name] = count
        return found

    def _at(self, path: str) -> int | None:
        value = lookup(self._usage, path)
        if value is None:
            return None
        count = count_of(value)
        if count is None:
            self._remark(path, value, "is no count")
        return count

    def _remark(self, path: str, value: object, what: str) -> None:
        remark = f"{path} {what}: {str(value)[:40]!r}"
        if remark not in self.remarks:
            self.remarks.append(remark)


def lookup(usage: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; None where any step is missing or no object."""
    value: Any = usage
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def object_at(value: Any, key: str) -> dict[str, Any] | None:
    """The object under a key; None if it is anything else."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else None


def objects_at(value: Any, key: str) -> list[dict[str, Any]]:
    """The objects in the list under a key; none if it is anything else."""
    inner = value.get(key) if isinstance(value, dict) else None
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []
