"""Pure. Rows of another ledger, held to the types and bounds that the recorder keeps.

The recorder puts right what the wire brings (`model/door.py`). Rows of another ledger are facts
with digests: they are taken as they are, or refused, one exchange at a time. Each column's type
and bound, and whether it holds a token, come from the fields of its record, as in the tables.
msgspec checks a row in C: 500 exchanges take 20 ms (measured).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from ledger.model.charge import Charge, Pricing
from ledger.model.columns import (
    NAME_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    TOKEN,
    Column,
    columns_of,
)
from ledger.model.door import DOCUMENT_BYTES_MAX, ENTRIES_MAX
from ledger.model.exchange import WINDOW_MINUTES_MAX, Exchange, Quota, Reading
from ledger.model.money import AMOUNT_MAX
from ledger.model.segments import PACKED_CHARACTERS_MAX
from ledger.model.usage import COUNT_MAX, Usage
from ledger.store.keys import Key
from ledger.store.writing.batch_insert import CHARGE_COLUMNS

INTEGER_MAX = 2**31 - 1
"""Of the columns that PostgreSQL keeps in 32 bits."""
SUM_MAX = 9 * 10**18
"""64 bits just hold it."""
_MOMENT = re.compile(r"(?:19[7-9]\d|[2-9]\d{3})-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_CONTROLS = "[^\\x01-\\x1f\\x7f-\\x9f]*"
"""No control character; a NUL is replaced where it is written (`bundles.write`)."""
_KEYS = {"exchanges": "id"}
"""Table -> its column with the id of the exchange; in all others `exchange_id`."""


class _Moment:
    """As SQLite keeps it."""


class _Tags:
    """A JSON object of texts."""


class _Units:
    """A JSON object of counts."""


class _Remarks:
    """A JSON array of texts."""


class _Further:
    """A JSON array of further iterations."""


class _UsageObject:
    """The provider's usage object."""


class _Lines:
    """A JSON array of charges, each an array."""


def _text(characters_max: int) -> Any:
    return Annotated[str, Meta(max_length=characters_max, pattern=f"^{_CONTROLS}$")]


def _whole(most: int, least: int = 0) -> Any:
    return Annotated[int, Meta(ge=least, le=most)]


_COUNT = _whole(COUNT_MAX)
_FLAG = bool | Literal[0, 1]
"""PostgreSQL's and SQLite's."""
_WORD = Annotated[str, Meta(pattern=f"^{TOKEN}$")]
_DOCUMENTS = {
    "tags": _Tags,
    "tool_units": _Units,
    "remarks": _Remarks,
    "further": _Further,
    "usage_json": _UsageObject,
}
_LIMITS = {
    "http_status": _whole(INTEGER_MAX),
    "revision": _whole(INTEGER_MAX),
    "window_minutes": _whole(WINDOW_MINUTES_MAX),
    "saved_picousd": _whole(SUM_MAX, -SUM_MAX),
    "extra_input_tokens": _whole(SUM_MAX),
    "extra_output_tokens": _whole(SUM_MAX),
}
"""Where the bound is not `COUNT_MAX`, or of an amount `AMOUNT_MAX`."""
_USAGE_KEY = re.compile(rf"{TOKEN}|\w{{1,32}}\[\]\.[\w.]{{1,64}}", re.ASCII)
"""A token, or a path of the recorder's through a list: `results[].tokenCount`."""
_CUT = {"cut", "bytes", "start"}
"""The members of what `door.document_of` makes of one that is too long."""
_BESIDE: dict[str, Any] = {
    "id": _text(NAME_CHARACTERS_MAX),
    "exchange_id": _text(NAME_CHARACTERS_MAX),
    "reading_id": _text(NAME_CHARACTERS_MAX),
    "revision": _whole(INTEGER_MAX),
    "opened_at": _Moment,
    "observed_at": _Moment,
    "charges": _Lines,
    "packed": Annotated[str, Meta(max_length=PACKED_CHARACTERS_MAX)],
    "holder": _text(NAME_CHARACTERS_MAX),
    "account": _text(NAME_CHARACTERS_MAX) | None,
    "key_fingerprint": _text(NAME_CHARACTERS_MAX) | None,
    "provider": _text(NAME_CHARACTERS_MAX),
}
"""Columns of tables that are no field of a record there."""
_RECORDS: dict[str, tuple[type, ...]] = {
    "exchanges": (Exchange,),
    "readings": (Reading, Usage, Pricing),
    "pricings": (Pricing,),
    "quotas": (Quota,),
}
_RENAMED = {"limit": "limit_value"}
"""Field of a quota -> its column: `limit` is a word of SQL."""


def refusals(bundle: Sequence[tuple[Any, tuple[str, ...], str]]) -> dict[Key, str]:
    """The exchanges of a bundle with a row that no recorder writes, and why: `TABLE.COLUMN: …`."""
    refused: dict[Key, str] = {}
    for table, names, text in bundle:
        decoder, row_decoder = _decoders(table.name, names)
        try:
            decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            its = names.index("opened_at"), names.index(_KEYS.get(table.name, "exchange_id"))
            for raw in msgspec.json.decode(text, type=list[msgspec.Raw]):
                try:
                    row_decoder.decode(raw)
                except (msgspec.DecodeError, UnicodeError) as error:
                    row = msgspec.json.decode(raw)
                    key = row[its[0]], row[its[1]]
                    refused.setdefault(key, f"{table.name}.{_reason(names, str(error))}")
    return refused


def _reason(names: Sequence[str], error: str) -> str:
    """The error with the column's name in place of its number."""
    why, _, path = error.partition(" - at `$[")
    number = path.partition("]")[0]
    return f"{names[int(number)]}: {why}" if number.isdigit() else error


@cache
def _decoders(
    table: str, names: tuple[str, ...]
) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Of the rows of a table, and of one of them."""
    known: dict[str, Any] = {}
    for record in _RECORDS.get(table, ()):
        known |= _types_of(record)
    row: Any = tuple.__class_getitem__(tuple(known.get(name, _BESIDE.get(name)) for name in names))
    return (
        msgspec.json.Decoder(list.__class_getitem__(row), dec_hook=_checked),
        msgspec.json.Decoder(row, dec_hook=_checked),
    )


def _types_of(record: type) -> Mapping[str, Any]:
    """What the columns of a record hold, by name."""
    columns = columns_of(record) or {
        _RENAMED.get(name, name): (kind, Column("", is_token=name == "status"))
        for name, kind in get_type_hints(record).items()
    }
    types: dict[str, Any] = {}
    for name, (kind, column) in columns.items():
        is_optional = NoneType in get_args(kind)
        inner = get_args(kind)[0] if is_optional else kind
        if name in _DOCUMENTS:
            found: Any = _DOCUMENTS[name]
        elif inner is datetime:
            found = _Moment
        elif inner is bool:
            found = _FLAG
        elif inner is int:
            usual = AMOUNT_MAX if name.endswith("_picousd") else COUNT_MAX
            found = _LIMITS.get(name, _whole(usual))
        elif inner is str:
            found = _WORD if column.is_token else _text(column.characters_max)
        else:
            assert issubclass(inner, StrEnum), name
            found = inner
        types[name] = found | None if is_optional else found
    return types


def _checked(kind: type, value: Any) -> Any:
    """msgspec's hook for the types of this module; ValueError if the value is none of them."""
    if kind is _Moment:
        if not isinstance(value, str) or not _MOMENT.fullmatch(value):
            raise ValueError("no moment of the years 1970 to 9999")
        datetime.fromisoformat(value)
    elif not isinstance(value, str):
        raise ValueError("no JSON")
    elif kind is _UsageObject:
        if len(value) > DOCUMENT_BYTES_MAX:
            raise ValueError("a usage object that is too long")
        _check_tokens(msgspec.json.decode(value))
    elif value not in ("{}", "[]"):
        try:
            _document_decoder(kind).decode(value)
        except msgspec.DecodeError as error:
            raise ValueError(str(error).partition(" - at ")[0]) from error
    return kind()


def _check_tokens(value: Any) -> None:
    """ValueError if a text in a usage object is none that the recorder keeps."""
    if isinstance(value, dict):
        if value.keys() == _CUT:
            return
        for name, inner in value.items():
            if not _USAGE_KEY.fullmatch(name):
                raise ValueError("a usage object with a name that is no token")
            _check_tokens(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_tokens(inner)
    elif isinstance(value, str) and not _USAGE_KEY.fullmatch(value):
        raise ValueError("a usage object with a text that is no token")


@cache
def _document_decoder(kind: type) -> msgspec.json.Decoder[Any]:
    name = _text(NAME_CHARACTERS_MAX)
    few = Meta(max_length=ENTRIES_MAX)
    units = Annotated[dict[name, _COUNT], few]  # type: ignore[valid-type]  # made of annotations
    if kind is _Tags:
        return msgspec.json.Decoder(Annotated[dict[name, name], few])  # type: ignore[valid-type]
    if kind is _Units:
        return msgspec.json.Decoder(units)
    if kind is _Remarks:
        return msgspec.json.Decoder(Annotated[list[_text(TEXT_CHARACTERS_MAX)], few])  # type: ignore[misc]
    if kind is _Further:
        inner = {**_types_of(Usage), "tool_units": units, "further": list, "remarks": list}
        usage = msgspec.defstruct("_Usage", [*inner.items()])
        further = msgspec.defstruct(
            "_Further", [("kind", name), ("model", name | None), ("usage", usage)]
        )
        return msgspec.json.Decoder(Annotated[list[further], few])  # type: ignore[valid-type]
    assert kind is _Lines, kind
    types = _types_of(Charge)
    # A line of a further pricing names the line that it replaces, last.
    fields: list[Any] = [
        *((column, types[column]) for column in CHARGE_COLUMNS),
        ("s", str | None, None),
    ]
    line = msgspec.defstruct("_Line", fields, array_like=True)
    return msgspec.json.Decoder(list[line], dec_hook=_checked)  # type: ignore[valid-type]
