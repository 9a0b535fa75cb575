"""Edge (its own table). What raises the cost of a request beyond the tokens that it states: models
that work by themselves, searches, input that the provider adds, speeds, tiers, geography, and how
long a cache is kept. `beyond_tokens.toml` is the table, with the provider's page for each."""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from addon.dialects.counts import lookup, objects_at
from addon.framing import json_values
from addon.parts.caps.members import Members, UnboundedError, folded

TABLE = Path(__file__).with_name("beyond_tokens.toml")
WALKED_MAX = 20_000
"""Values of a request that are looked through, in 5 ms; with more, it may have any."""


class _Table(NamedTuple):
    models: tuple[str, ...]
    members: Mapping[str, tuple[Any, ...]]
    """Path -> the values that ask for nothing."""
    fields: tuple[tuple[str, ...], ...]
    """What prices depend on: the paths of one text, as `addon.dialects.request` reads them."""
    lifetimes: Mapping[str, Mapping[str, bool]]
    """Folded name of a member -> its lifetimes, and whether each is a long one."""


@cache
def table() -> _Table:
    """The rows of the file."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return _Table(
        tuple(name for row in rows["model"] for name in row["models"]),
        {name: tuple(row.get("off", ())) for row in rows["member"] for name in row["members"]},
        tuple(tuple(row["paths"]) for row in rows["field"]),
        {
            folded(name): dict.fromkeys(row["short"], False) | dict.fromkeys(row["long"], True)
            for row in rows["lifetime"]
            for name in row["members"]
        },
    )


def works_by_itself(model: str) -> bool:
    """Whether a model searches, or chooses other models, however little is asked of it."""
    name = model.lower()
    names = (name, name.rpartition("/")[2])
    return any(fnmatchcase(each, glob) for glob in table().models for each in names)


def check(values: dict[str, Any], members: Members) -> None:
    """UnboundedError if a request lets the provider do what it does not limit, or names its speed,
    tier or geography in words that nobody understands."""
    for path, off in table().members.items():
        for value in members.at(path):
            is_off = any(
                type(value) is type(each) and value == each for each in off
            )  # 0: not false
            if not (is_off or _only_clears(path, value)):
                what = "the provider may do work that the request does not limit"
                raise UnboundedError(f"with {path} {what}")
    for paths in table().fields:
        stated = members.at(paths[0])
        read = [value for path in paths if (value := lookup(values, path)) is not None]
        for value in stated:
            text = value.get("type") if isinstance(value, dict) else value
            if not (isinstance(text, str) and text and value in read and value == stated[0]):
                raise UnboundedError(f"{paths[0]} is not understood: {str(value)[:40]!r}")


def is_kept_long(values: dict[str, Any], body: bytes) -> bool:
    """Whether a request asks for a cache that is kept long, which costs more to write.
    UnboundedError for a lifetime that nobody knows."""
    if b'"ttl"' not in body.lower() and not json_values.has_escaped_key(body):
        return False
    is_long, walked = False, 0
    left: list[Any] = [values]
    while left:
        value = left.pop()
        walked += 1
        if walked > WALKED_MAX:
            return True
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not isinstance(inner, list | dict):
                    continue
                left.append(inner)
                lifetimes = table().lifetimes.get(folded(name))
                if lifetimes is None or isinstance(inner, list):
                    continue
                for ttl in Members(inner).at("ttl"):
                    if not isinstance(ttl, str) or ttl not in lifetimes:
                        raise UnboundedError(f"a cache lifetime is not known: {str(ttl)[:40]!r}")
                    is_long |= lifetimes[ttl]
    return is_long


def _only_clears(path: str, value: Any) -> bool:
    """Whether a provider leaves older parts of the input out, and makes nothing of its own
    (https://platform.claude.com/docs/en/build-with-claude/context-editing)."""
    edits = objects_at(value, "edits")
    return (
        path == "context_management"
        and bool(edits)
        and value.keys() == {"edits"}
        and len(edits) == len(value["edits"])
        and all(str(edit.get("type")).startswith("clear_") for edit in edits)
    )
