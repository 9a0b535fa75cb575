"""Pure. `[[tables]]` of a TOML text, validated by msgspec, with the line of every problem."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import msgspec

from ledger.model.errors import LedgerError
from ledger.text.hints import suggestion

NATIVE = (Decimal, date, datetime, time)
"""Types with their own TOML syntax: a text is not converted to them."""
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<key>[^`]*)`")
_PLACE = re.compile(r"^(?P<text>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_INVALID_VALUE = re.compile(r"[Ii]nvalid enum value '?(?P<value>[^'`]*)'?")
_INDEX = re.compile(r"\[[^\[\]]*\]")
_MISSING = re.compile(r"missing required field `(?P<key>[^`]*)`")

_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<found>[^`]*)`")
_TYPE_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "decimal": "a number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table { ... }",
    "array": "a list [ ... ]",
    "date": "a date",
    "datetime": "a time",
}
"""msgspec's names of types -> words."""

PROBLEMS_MAX = 10
"""Problems that one error names."""
PROBLEM_LENGTH_MAX = 600
"""Characters of one problem. A longer one repeats a long value; it keeps both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlProblem:
    """A problem and its line: `line 3: price 1: modle: unknown …`."""

    line: int | None
    """From 1; None: the file as a whole."""
    text: str

    def __str__(self) -> str:
        text = self.text
        if len(text) > PROBLEM_LENGTH_MAX:
            text = text[: PROBLEM_LENGTH_MAX // 2] + " ... " + text[-PROBLEM_LENGTH_MAX // 2 :]
        return text if self.line is None else f"line {self.line}: {text}"


class FaultError(ValueError):
    """A problem in one table: its key, and the reason."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key


def refusal(path: object, problems: Sequence[object], command: str) -> LedgerError:
    """An error with the first problem of a file, and the command that shows the rest.
    Without a command, with the first PROBLEMS_MAX."""
    if not command:
        rest = len(problems) - PROBLEMS_MAX
        texts = [*map(str, problems[:PROBLEMS_MAX]), *([f"and {rest} more"] if rest > 0 else [])]
        return LedgerError(f"{path}: {'; '.join(texts)}")
    more = f" (and {len(problems) - 1} more: {command})" if problems[1:] else ""
    return LedgerError(f"{path}: {problems[0]}{more}")


def valid[T](path: object, checked: tuple[T, Sequence[object]], command: str = "") -> T:
    """What a file holds, if it has no problems; else LedgerError, as `refusal`."""
    value, problems = checked
    if problems:
        raise refusal(path, problems, command)
    return value


def parse(text: str) -> tuple[dict[str, Any], list[TomlProblem]]:
    """The document, figures as decimals; a problem if it is not TOML."""
    try:
        return tomllib.loads(text, parse_float=decimal_of_figure), []
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        return {}, [TomlProblem(line=int(line[1]) if line else None, text=f"not TOML: {error}")]
    except (RecursionError, ValueError) as error:
        return {}, [TomlProblem(line=None, text=f"not TOML that can be read: {error}"[:200])]


def unknown_tables(
    text: str, document: Mapping[str, Any], known: tuple[str, ...]
) -> Iterator[TomlProblem]:
    """A problem for every unknown top-level key."""
    for key in document:
        if key not in known:
            hint = suggestion(key, known)
            yield TomlProblem(
                line=line_of_key(text, key),
                text=f"{key}: unknown{hint}; the file has {', '.join(known)}",
            )


def converted[T](
    text: str, document: Mapping[str, Any], name: str, kind: type[T]
) -> tuple[list[tuple[int, T]], list[TomlProblem]]:
    """The `[[name]]` tables as (place, value), and the problem of each invalid table."""
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        line = line_of_key(text, name)
        return [], [TomlProblem(line=line, text=f"{name}: write [[{name}]] for each")]
    values: list[tuple[int, T]] = []
    problems: list[TomlProblem] = []
    for place, table in enumerate(tables):
        try:
            values.append((place, msgspec.convert(table, kind, builtin_types=NATIVE)))
        except (msgspec.ValidationError, FaultError) as error:
            problems.append(problem_of(text, name, place, fault_of(error, kind)))
    return values, problems


def fault_of(error: Exception, kind: Any) -> FaultError:
    """msgspec's error as a key and a reason; our own error, raised during the conversion,
    unchanged."""
    cause = error.__cause__ or error.__context__
    for each in (error, cause):
        if isinstance(each, FaultError):
            return each
    message = str(error)
    known = sorted(field.encode_name for field in msgspec.structs.fields(kind))
    placed = _PLACE.match(message)
    assert placed is not None  # it matches any text
    path = (placed["path"] or "").lstrip(".")
    if unknown := _UNKNOWN_FIELD.search(message):
        key = unknown["key"]
        hint = suggestion(key, known)
        names = "" if path else f"; one of {', '.join(known)}"
        return FaultError(f"{path}.{key}" if path else key, f"unknown{hint}{names}")
    if missing := _MISSING.search(message):
        return FaultError(missing["key"], "missing")
    if invalid := _INVALID_VALUE.search(message):
        choices = list(dict.fromkeys(_choices(kind, _INDEX.sub("", path).split("."))))
        hint = suggestion(invalid["value"], choices)
        one_of = f"; one of {', '.join(choices)}" if choices else ""
        return FaultError(path or "the table", f"{invalid['value']!r} is not known{hint}{one_of}")
    reason = _EXPECTED.sub(_in_words, placed["text"])
    return FaultError(path or "the table", f"{reason[:1].lower()}{reason[1:]}".replace("`", ""))


def _choices(kind: Any, path: Sequence[str]) -> Iterator[str]:
    """The values that a type, or the field of a table at a path, takes: those of enumerations and
    literals in it."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        yield from (str(each.value) for each in kind)
    elif get_origin(kind) is Literal:
        yield from map(str, get_args(kind))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name == path[0]:
                yield from _choices(field.type, path[1:] or ("",))
    else:
        for inner in get_args(getattr(kind, "__value__", kind)):
            yield from _choices(inner, path)


def _in_words(found: re.Match[str]) -> str:
    kinds = [kind for kind in found["wanted"].split(" | ") if kind != "null"]
    wanted = " or ".join(dict.fromkeys(_TYPE_WORDS.get(kind, kind) for kind in kinds))
    return f"not {wanted} but {_TYPE_WORDS.get(found['found'], found['found'])}"


def problem_of(text: str, name: str, place: int, fault: FaultError) -> TomlProblem:
    """The problem with the line it is in."""
    key = _INDEX.sub("", fault.key).rpartition(".")[2]
    line = line_in_table(text, name, place, key)
    return TomlProblem(line=line, text=f"{name} {place + 1}: {fault}")


def line_in_table(text: str, name: str, place: int, key: str) -> int | None:
    """The line of a key in the table at this place: tomllib keeps no positions, so this counts the
    headers and searches the key below; the header's line if it is not found."""
    lines = text.splitlines()
    headers = [
        at
        for at, line in enumerate(lines)
        if re.match(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]", line)
    ]
    if place >= len(headers):
        return None
    start = headers[place]
    end = headers[place + 1] if place + 1 < len(headers) else len(lines)
    return next((at for at in range(start, end) if _mentions(lines[at], key)), start) + 1


def line_of_key(text: str, key: str) -> int | None:
    """The first line that gives this key or opens this table."""
    for number, line in enumerate(text.splitlines(), 1):
        if _mentions(line, key) or re.match(rf"\s*\[{{1,2}}\s*{re.escape(key)}\b", line):
            return number
    return None


def _mentions(line: str, key: str) -> bool:
    return re.search(rf"(^|[\s{{,.\"'])({re.escape(key)})[\"']?\s*=", line) is not None


def decimal_of_figure(figure: str) -> Decimal:
    """For parsers: the figure as it is written."""
    try:
        return Decimal(figure)
    except ArithmeticError:  # the exponent is beyond Decimal's range: refused like `inf`
        return Decimal("Infinity")
