"""Pure. The key of an exchange in a database, and how a statement takes many of them."""

from collections.abc import Sequence

import orjson

type Key = tuple[str, str]
"""opened_at as text, and the exchange's id."""


def parameters(keys: Sequence[Key]) -> dict[str, str]:
    """The parameter of `chosen`: one JSON text, however many keys there are."""
    return {"keys": orjson.dumps(keys).decode()}


def chosen(dialect: str) -> str:
    """A query for the opened_at and the id of each key."""
    if dialect == "sqlite":
        return "SELECT value ->> 0, value ->> 1 FROM json_each(:keys)"
    return (
        "SELECT (k ->> 0)::timestamptz, k ->> 1 FROM jsonb_array_elements(CAST(:keys AS jsonb)) k"
    )
