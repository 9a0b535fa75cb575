"""The columns of a record are the fields that say so."""

from dataclasses import dataclass
from typing import Annotated

from ledger.model.columns import Column, columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    second: Annotated[int | None, "a note for somebody else", Column("How many.")]
    plain: str
    noted: Annotated[int, "no column"]
    first: Annotated[str, Column("A name.", characters_max=7)]


def test_columns_are_the_annotated_fields_in_their_order():
    columns = columns_of(Record)
    assert list(columns) == ["second", "first"]
    assert columns["second"] == (int | None, Column("How many."))
    kind, column = columns["first"]
    assert kind is str
    assert column.characters_max == 7
