"""Pure. Describes every column of the ledger: once, beside the field of its record.

A field of a record is annotated with a `Column`. The tables (`store/tables.py`), the views' lists
and descriptions, the batch insert and the text bounds of `door.py` are made from these annotations.
Migrations do not read them: a released migration never changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

NAME_CHARACTERS_MAX = 256
"""Ids, names of models, words of a protocol: longer than any known provider sends."""
TEXT_CHARACTERS_MAX = 1_024
"""Free text: a path, a user agent, an error message."""
TOKEN = "[A-Za-z0-9._:/-]{1,64}"  # noqa: S105  # no password: a form
"""The form of a word of an answer."""


@dataclass(frozen=True, slots=True)
class Column:
    """The description of a column, and the longest text in it, in characters."""

    text: str
    characters_max: int = NAME_CHARACTERS_MAX
    is_token: bool = False
    """It holds a `TOKEN` of an answer, and no free text."""


@cache
def columns_of(record: type) -> Mapping[str, tuple[Any, Column]]:
    """The columns of a record, in the order of its fields: name -> (type, column)."""
    hints = get_type_hints(record, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }
