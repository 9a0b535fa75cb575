"""Pure. Counts, amounts and keys of untrusted usage objects."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from decimal import Decimal
from itertools import islice
from typing import Any

from ledger.model.money import picousd_of
from ledger.model.usage import COUNT_MAX, count_of, sum_of, with_underscores

HEADER_PREFIX = "header:"
"""Begins the keys of a usage object that was gathered from the answer's headers."""

_BILLABLE = re.compile(
    "^(?!.*time_(to|per)_).*(tokens?|token_?count|units|requests|queries|calls|searches|images"
    "|pages|characters|invocations?|executions|sessions|credits"
    "|(audio|video|billed|billable)_?(seconds|minutes))$",
    re.IGNORECASE,
)
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9_]")
_NO_COUNT = "is no count"
_DEPTH_MAX = 4
"""How deep a usage object is read; the deepest known path has three steps."""
MEMBERS_MAX = 64
"""Of an object that is put together from the usage of many messages; one message has ten."""
_REMARKS_MAX = 16
"""Remarks of one usage object. Bounded, because upstream may send any number of bad values."""


class Counts:
    """One pass over a usage object: reads valid counts; other values become remarks.

    A path `a.b` is key b of the object at a. A value of null counts as not reported.
    """

    __slots__ = ("_remarks", "_reported")

    def __init__(self, usage: Mapping[str, Any]) -> None:
        self._reported: dict[str, Any] = {}
        _flatten(usage, "", self._reported, _DEPTH_MAX)
        self._remarks: dict[str, None] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """A text for each reported value that cannot be a count, without repeats."""
        return tuple(self._remarks)

    def has(self, *paths: str) -> bool:
        """Whether any of these is reported, as a count or not."""
        return not self._reported.keys().isdisjoint(paths)

    def falls_from(self, before: "Counts") -> list[str]:
        """The paths of the numbers that are less than they were."""
        return [
            path
            for path, value in self._reported.items()
            if type(value) in (int, float)
            and type(was := before._reported.get(path)) in (int, float)
            and value < was
        ]

    def paths_within(self, prefix: str) -> list[str]:
        """The paths of the values in the object at `prefix`."""
        return [path for path in self._reported if path.startswith(prefix + ".")]

    def first(self, *paths: str) -> int | None:
        """The first of these that is reported."""
        return self._first(paths, count_of, _NO_COUNT)

    def firsts(self, paths_of: Mapping[str, Collection[str]]) -> dict[str, int | None]:
        """By each name, the first of its paths that is reported."""
        reported = self._reported.keys()
        return {
            name: None if reported.isdisjoint(paths) else self._first(paths, count_of, _NO_COUNT)
            for name, paths in paths_of.items()
        }

    def picousd(self, *paths: str) -> int | None:
        """The first of these amounts of USD that is reported."""
        return self._first(paths, picousd_of, "is no amount")

    def milliseconds(self, *paths: str) -> int | None:
        """The first of these durations, which the wire gives in seconds."""
        return self._first(paths, _milliseconds_of, "is no duration")

    def _first(
        self, paths: Iterable[str], read: Callable[[Any], int | None], otherwise: str
    ) -> int | None:
        for path in paths:
            if path in self._reported:
                value = read(self._reported[path])
                if value is not None:
                    return value
                remark = f"{path} {otherwise}: {str(self._reported[path])[:40]!r}"
                if len(self._remarks) < _REMARKS_MAX:
                    self._remarks[remark] = None
        return None

    def units(self, names: Mapping[str, str], *, within: str = "") -> dict[str, int]:
        """The reported units, by the ledger's name for their paths; zeros left out.

        `usage_json` has the tools that ran zero times; in reports they would be noise. If several
        paths have one name, they mean the same, and the last one counts. A value in an object of
        tools (`within`) without a name here keeps its own name, because it is billed.
        """
        found: dict[str, int] = {}
        for path in self._reported:
            name = names.get(path)
            if name is None and within and path.startswith(within + "."):
                name = with_underscores(path.rpartition(".")[2])[:64]
            count = self.first(path) if name is not None else None
            if name is not None and count:
                found[name] = count
        return found


def _milliseconds_of(seconds: Any) -> int | None:
    if type(seconds) not in (int, float) or not 0 <= seconds < 10**9:
        return None
    return int(Decimal(str(seconds)).scaleb(3).to_integral_value())


def _flatten(usage: Mapping[str, Any], prefix: str, reported: dict[str, Any], depth: int) -> None:
    for key, value in usage.items():
        if type(value) is dict:
            if depth:
                _flatten(value, f"{prefix}{key}.", reported, depth - 1)
        elif value is not None:
            reported[prefix + key] = value


def unknown_values(usage: Mapping[str, Any], known: Set[str]) -> Iterator[tuple[str, Any]]:
    """Unknown keys of a usage object and their values, down to one step into its objects and those
    in its lists.

    In `known`, `a.b` is one key of the object a, and `a.*` is all of its keys. An object a without
    either has no known keys.
    """
    for key, value in usage.items():
        if key not in known:
            yield key[:64], value
        elif type(value) in (dict, list) and f"{key}.*" not in known:
            for one in (value,) if type(value) is dict else objects_at(usage, key):
                for inner, its in one.items():
                    if f"{key}.{inner}" not in known:
                        yield f"{key}.{inner}"[:128], its


def unknown_counts(usage: Mapping[str, Any], known: Set[str]) -> dict[str, int]:
    """The counts under unknown keys that a provider may bill, by a name for the unit.

    A count of tokens or calls is billed until its provider says otherwise; speeds and times are
    not. Counts of one name in a list are added up; a fraction counts as the next whole number.
    Zeros are left out. Bounded, because upstream may send any number of keys.
    """
    found: dict[str, int] = {}
    sums: Counter[str] = Counter()
    for path, value in unknown_values(usage, known):
        for name, reported in _values_in(value, path, _DEPTH_MAX):
            if _BILLABLE.search(name) and (len(sums) < _REMARKS_MAX or name in sums):
                whole, is_text = reported, type(reported) is str
                if type(reported) is float and 0 < reported < COUNT_MAX:
                    whole = math.ceil(reported)
                elif is_text and len(reported) <= 18 and reported.isascii() and reported.isdigit():
                    whole = int(reported)
                sums[name] += count_of(whole) or 0
    for name, total in sums.items():
        if count := count_of(total):
            found[unit_name(name)] = count
    return found


def unit_name(path: str) -> str:
    """The ledger's name for a unit that it has no word for."""
    return with_underscores(_NOT_IN_NAMES.sub("_", path))[:64]


def fallen(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The paths of the counts that are less than before: totals that run do not fall."""
    then, now = Counts(before), Counts(after)
    return [path[:64] for path in now.falls_from(then)][:_REMARKS_MAX]


def beside(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The members of both, of which the later count; the first `MEMBERS_MAX` of many."""
    return dict(islice({**before, **after}.items(), MEMBERS_MAX))


def added(
    before: Mapping[str, Any], after: Mapping[str, Any], depth: int = _DEPTH_MAX
) -> dict[str, Any]:
    """The sum of two usage objects, count by count; other values are the later."""
    total = beside(before, after)
    for key, value in after.items():
        inner = object_at(before, key)
        if inner is not None and isinstance(value, dict) and depth:
            total[key] = added(inner, value, depth - 1)
        counts = count_of(before.get(key)), count_of(value)
        if None not in counts:
            total[key] = sum_of(*counts)
    return total


def counts_among(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The usage of a format whose counts stand among other members: those known, where they are
    reported, and any other count that may be billed."""
    found: dict[str, Any] = {}
    for key, value in members.items():
        is_known = key in known and value is not None
        if is_known or (len(found) < _REMARKS_MAX and _BILLABLE.search(key) and count_of(value)):
            found[key] = value
    return found


def _values_in(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The values in objects and lists, each with its path."""
    if depth and isinstance(value, dict):
        for key, inner in value.items():
            yield from _values_in(inner, f"{path}.{key}", depth - 1)
    elif depth and isinstance(value, list):
        for inner in value:
            yield from _values_in(inner, path, depth - 1)
    else:
        yield path, value


def lookup(values: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, in which a number is a place in a list; None if any step of it is
    missing."""
    value: Any = values
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def counts_in(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """The counts in the headers of these names that have one, by keys of a usage object."""
    found = {}
    for name in names:
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= COUNT_MAX:
            found[HEADER_PREFIX + name] = int(text)
    return found


def object_at(value: Any, key: str) -> dict[str, Any] | None:
    """The object under a key; None if it is anything else."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else None


def objects_at(value: Any, key: str) -> list[dict[str, Any]]:
    """The objects in the list under a key; none if it is anything else."""
    inner = value.get(key) if isinstance(value, dict) else None
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []
