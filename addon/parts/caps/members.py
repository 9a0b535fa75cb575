"""Pure. The members of a request, in any spelling that a server may take.

Protobuf takes `maxTokens` and `max_tokens`, Go's reader any capital letters. So a member is looked
for by its letters alone, all of its values count, and what is not understood is an error, never the
default.
"""

from collections.abc import Iterable
from typing import Any

from ledger.model.usage import count_of


class UnboundedError(Exception):
    """Nothing bounds what a request costs, and why."""


def folded(name: str) -> str:
    """A name by its letters alone: the same for `max_tokens`, `maxTokens` and `Max-Tokens`."""
    return name.replace("_", "").replace("-", "").lower()


class Members:
    """An object by the folded names of its members. Nulls are absent."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values: dict[str, list[Any]] = {}
        for name, value in values.items():
            if value is not None:
                self._values.setdefault(folded(name), []).append(value)

    def at(self, path: str) -> list[Any]:
        """The values at a dotted path. UnboundedError where a step is no object."""
        first, _, rest = path.partition(".")
        values = self._values.get(folded(first), [])
        if not rest:
            return values
        found = []
        for value in values:
            if not isinstance(value, dict):
                raise UnboundedError(f"{first} is no object")
            found += Members(value).at(rest)
        return found

    def has(self, path: str) -> bool:
        """Whether there is a value at a path."""
        return bool(self.at(path))

    def counts(self, paths: Iterable[str]) -> list[int]:
        """The counts at these paths; -1, a word of some servers for no limit, is 0.
        UnboundedError for what is no whole number."""
        found = []
        for path in paths:
            for value in self.at(path):
                count = count_of(value)
                if count is None and not (type(value) is int and value < 0):
                    raise UnboundedError(f"{path} is no count: {str(value)[:40]!r}")
                found.append(count or 0)
        return found

    def objects(self, path: str) -> list[dict[str, Any]]:
        """The objects in the lists at a path, or that stand there alone. UnboundedError for
        anything else."""
        found = []
        for value in self.at(path):
            for each in value if isinstance(value, list) else [value]:
                if not isinstance(each, dict):
                    raise UnboundedError(f"{path} has what is no object: {str(each)[:40]!r}")
                found.append(each)
        return found

    def text(self, path: str) -> str | None:
        """The one text at a path; None: there is none. UnboundedError for several, and for what
        is no text."""
        values = self.at(path)
        if not values:
            return None
        if not isinstance(values[0], str) or any(each != values[0] for each in values):
            raise UnboundedError(f"{path} is no text, or two of them")
        return values[0]
