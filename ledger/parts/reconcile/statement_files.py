"""Edge. Reads vendors' statements from files. The content and not the name decides which export a
file is."""

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ledger.model.errors import LedgerError
from ledger.parts.reconcile.statement import Statement, UnreadableValue
from ledger.parts.reconcile.vendors import CSV_EXPORTS, GOOGLE, JSON_EXPORTS, Export
from ledger.settings import small_files

STATEMENT_BYTES_MAX = 256 * 1024 * 1024
"""A year of an organisation by the minute; a larger file is not a statement."""

_NOT_KNOWN = (
    "not a known statement: OpenAI usage or costs JSON, Anthropic usage or cost JSON or CSV, "
    "OpenRouter activity JSON or CSV, AWS Cost and Usage Report CSV, Azure cost details CSV, "
    "Google Cloud billing export JSON, or a CSV with the columns day, model, input_tokens, "
    "output_tokens, cost_usd"
)


def load(name: str, *, provider: str | None) -> Statement:
    """Read one file. `provider`: used if the export does not name it. Raises LedgerError."""
    text = small_files.read_text(
        Path(name), "statement", bytes_max=STATEMENT_BYTES_MAX, advice="name a vendor's export"
    )
    statement = read(name, text)
    return replace(statement, provider=statement.provider or provider)


def read(name: str, text: str) -> Statement:
    """The statement in a file's text; LedgerError, with `name` in it, if the text is not a
    statement."""
    try:
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
            return _read_json(text)
        return _read_csv(text)
    except UnreadableValue as error:
        raise LedgerError(f"{name}: {error}") from None


def _read_json(text: str) -> Statement:
    # One page, a list of pages, or a page on each line.
    text = text.lstrip("\ufeff")
    try:
        whole = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError) as error:
        try:
            whole = [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line]
        except (ValueError, RecursionError, ArithmeticError):
            raise UnreadableValue(f"not JSON: {str(error)[:200]}") from None
    pages = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(page, dict) for page in pages):
        raise UnreadableValue(_NOT_KNOWN)
    # Each result with its time bucket; without buckets, with itself.
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for page in pages:
        if "data" not in page and GOOGLE.fits(page):
            rows.append((page, page))
            continue
        data = page.get("data")
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise UnreadableValue(_NOT_KNOWN)
        for item in data:
            results = item.get("results", item.get("result"))
            if isinstance(results, list):
                rows += [(item, result) for result in results if isinstance(result, dict)]
            else:
                rows.append((item, item))
    warnings: tuple[str, ...] = ()
    if pages and pages[-1].get("has_more") is True:
        warnings = ("has_more is true in its last page: the report continues in another",)
    for shape in JSON_EXPORTS:
        if rows and all(shape.fits(result) for _, result in rows):
            lines = (shape.line(bucket, result) for bucket, result in rows)
            return Statement(
                kind=shape.kind,
                provider=shape.provider,
                lines=tuple(line for line in lines if line is not None),
                warnings=warnings,
                looked_for=shape.looks_for,
            )
    if pages and not rows:
        return Statement(kind="empty report", provider=None, lines=(), warnings=warnings)
    raise UnreadableValue(_NOT_KNOWN)


def _read_csv(text: str) -> Statement:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    try:
        # Azure's column names differ in case between agreements.
        names = [name.strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        shape = _shape_of(frozenset(names))
        lines = []
        for row in reader:
            try:
                line = shape.line(row, row)
            except UnreadableValue as error:
                raise UnreadableValue(f"line {reader.line_num}: {error}") from None
            if line is not None:
                lines.append(line)
    except csv.Error as error:
        # The reader does not count the line that it refused.
        raise UnreadableValue(f"line {reader.line_num + 1}: {error}") from None
    return Statement(
        kind=shape.kind,
        provider=shape.provider,
        lines=tuple(lines),
        looked_for=shape.looks_for,
    )


def _shape_of(there: frozenset[str]) -> Export:
    """The export with these columns. Of one that lacks some, the error names them."""
    shape = next((each for each in CSV_EXPORTS if each.known_by <= there), None)
    if shape is None:
        nearest = max(CSV_EXPORTS, key=lambda each: _likeness(each, there))
        if not _likeness(nearest, there)[0]:
            raise UnreadableValue(_NOT_KNOWN)
        lacking = (nearest.known_by | nearest.needs) - there
        text = f"not a known statement; to be {nearest.kind} it lacks {_columns(lacking)}"
        raise UnreadableValue(text)
    if lacking := shape.needs - there:
        raise UnreadableValue(f"{shape.kind} lacks {_columns(lacking)}")
    if shape.needs_one_of and not there & {*shape.needs_one_of}:
        choice = ", ".join(shape.needs_one_of)
        raise UnreadableValue(f"{shape.kind} lacks a column of figures; use one of {choice}")
    return shape


def _likeness(export: Export, there: frozenset[str]) -> tuple[int, int]:
    """How many columns an export has in common with a file, and how few it lacks."""
    columns = export.known_by | export.needs
    return len((columns | {*export.needs_one_of}) & there), -len(columns - there)


def _columns(names: frozenset[str]) -> str:
    return f"the column{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"
