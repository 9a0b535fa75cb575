"""Edge. What a command used: printed when it has ended, and compared with a file (`--expect`).

    tolerance = 0.05              # each figure may be 5 % more or less; default: 0

    [total]                       # a table or a figure that is not written is not compared
    requests = 3
    input_tokens = 4200
    cache_read_tokens = 1024
    output_tokens = 310
    list_value_usd = 0.0123

    [models."gpt-5"]              # if a model is written, every model that answers has to be
    requests = 3

An answer that was recorded before counts like any other here: a served recording answers each run
with the same one.
"""

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from ledger.figures import queries
from ledger.model.errors import LedgerError
from ledger.model.exchange import NO_MODEL
from ledger.model.money import PICOUSD_PER_USD, sum_of_known
from ledger.reports import render, report_tables
from ledger.settings import small_files
from ledger.store import db
from ledger.store.adding_up import seen_by_model
from ledger.store.engines import urls
from ledger.store.scope import Scope
from ledger.store.spool import path_for
from ledger.text.figures import counted
from ledger.text.hints import as_typed
from ledger.text.printable import printable


def show(ledger_url: str, run_id: str, word: str = "tag:run") -> bool:
    """A table by model of the requests of a run, which the dimension `word` tells, to stderr;
    whether there are any, or it is not known."""
    console = Console(stderr=True, highlight=False)
    try:
        scope = Scope(only=((word, run_id),))
        with db.disposing(db.open_engine(_local(ledger_url))) as engine:
            found = queries.report(engine, ["model"], scope)
            refused = queries.refused_by_cap(engine, scope)
        seen = sum(each.requests or 0 for each in used(ledger_url, run_id, word).values())
    except Exception as error:  # noqa: BLE001  # the exit code is the command's
        why = urls.failed(error) or next(iter(str(error).splitlines()), type(error).__name__)
        console.print(escape(f"tokentee: {why}"))
        return True
    requests = found.total.figures.requests
    if repeated := seen - requests:
        text = counted(repeated, "answer was", "answers were")
        console.print(f"tokentee: {text} in the ledger already and not counted again")
    if refused:
        caps = ", ".join(
            f"{printable(cap) or 'an error'} {count:,}" for cap, count in refused.items()
        )
        all_refused = counted(found.total.figures.refused, "request")
        console.print(escape(f"tokentee: caps refused {all_refused}: {caps}"))
    if not requests:
        if not (repeated or refused):
            console.print("tokentee: no LLM request passed")
        return bool(repeated or refused)
    sys.stderr.write("\n")
    title = "This run by model"
    render.print_table(report_tables.screen(found), console, title)
    for note in report_tables.notes(found):
        console.print(escape(note))
    more = as_typed(f"tokentee report --only {word}={run_id}", os.environ)
    where = f"tokentee: in {urls.shown(ledger_url)}; more: {more}"
    console.print(escape(where), soft_wrap=True)
    return True


class RunFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What some requests used. None: not written, or not known."""

    requests: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    output_tokens: int | None = None
    list_value_usd: Decimal | None = None

    def __add__(self, other: "RunFigures") -> "RunFigures":
        sums: dict[str, Any] = {
            name: sum_of_known((getattr(self, name), getattr(other, name)))
            for name in self.__struct_fields__
        }
        return RunFigures(**sums)


NO_REQUESTS = RunFigures(requests=0)


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says."""

    tolerance: Decimal = Decimal(0)
    total: RunFigures | None = None
    models: Mapping[str, RunFigures] = {}


def read(path: Path) -> Expected:
    """The file. LedgerError if it cannot be read, or says what is not known."""
    text = small_files.read_text(path, "file of expected costs")
    try:
        found = msgspec.convert(tomllib.loads(text, parse_float=Decimal), Expected, strict=False)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise LedgerError(f"{path}: {error}") from None
    if not (found.tolerance.is_finite() and 0 <= found.tolerance <= 1):
        raise LedgerError(f"{path}: tolerance {found.tolerance} is not from 0 to 1")
    for each in (found.total or RunFigures(), *found.models.values()):
        if each.list_value_usd is not None and not each.list_value_usd.is_finite():
            raise LedgerError(f"{path}: list_value_usd {each.list_value_usd} is not a number")
    return found


def used(ledger_url: str, run_id: str, word: str = "tag:run") -> dict[str, RunFigures]:
    """Model -> what the requests of a run used. LedgerError if the ledger cannot be read."""
    with db.disposing(db.open_engine(_local(ledger_url))) as engine:
        rows = seen_by_model(engine, (word, run_id), _TOKENS)
    found = {}
    for row in rows:
        model, requests, *tokens, picousd = tuple(row)
        found[model or NO_MODEL] = RunFigures(
            requests=requests,
            list_value_usd=None if picousd is None else Decimal(picousd) / PICOUSD_PER_USD,
            **dict(zip(_TOKENS, tokens, strict=True)),
        )
    return found


_TOKENS = ("input_tokens", "cache_read_tokens", "output_tokens")


def differences(expected: Expected, found: Mapping[str, RunFigures]) -> Iterator[str]:
    """A line for each figure that is further off than the tolerance."""
    if expected.total is not None:
        total = sum(found.values(), NO_REQUESTS)
        yield from _differences("total", expected.total, total, expected.tolerance)
    if expected.models:
        for model in sorted(expected.models.keys() | found.keys()):
            want = expected.models.get(model, NO_REQUESTS)
            got = found.get(model, NO_REQUESTS)
            yield from _differences(printable(model), want, got, expected.tolerance)


def _differences(name: str, want: RunFigures, got: RunFigures, tolerance: Decimal) -> Iterator[str]:
    for figure in RunFigures.__struct_fields__:
        expected, used_ = getattr(want, figure), getattr(got, figure)
        if used_ is None:
            if expected:  # older files have 0 where no figure was known
                yield f"{name}: {figure} not known, expected {_text(expected)}"
            continue
        if expected is None or abs(used_ - expected) <= tolerance * expected:
            continue
        change = f", {(used_ - expected) / Decimal(expected):+.1%}" if expected else ""
        yield f"{name}: {figure} {_text(used_)}, expected {_text(expected)}{change}"


def write(path: Path, expected: Expected, found: Mapping[str, RunFigures]) -> None:
    """Write what was used, under the tolerance that the file had."""
    lines = [f"tolerance = {_text(expected.tolerance)}", "", "[total]"]
    lines += _lines(sum(found.values(), NO_REQUESTS))
    for model in sorted(found):
        # TOML escapes as JSON does, but knows no halves of surrogate pairs.
        key = json.dumps(model, ensure_ascii=False)
        lines += ["", f"[models.{key}]", *_lines(found[model])]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}") from None


def _lines(figures: RunFigures) -> Iterator[str]:
    for name in RunFigures.__struct_fields__:
        value = getattr(figures, name)
        if value is not None:
            yield f"{name} = {_text(value)}"


def _text(value: int | Decimal) -> str:
    return str(value) if isinstance(value, int) else f"{value.normalize():f}"


def check(ledger_url: str, run_id: str, path: Path, *, update: bool) -> list[str]:
    """The differences of a run from a file, or that it was written. LedgerError if the file or the
    ledger cannot be read."""
    expected = read(path) if path.exists() or not update else Expected()
    found = used(ledger_url, run_id)
    if update:
        write(path, expected, found)
        return []
    return list(differences(expected, found))


def _local(ledger_url: str) -> str:
    """The ledger that holds all requests of the run: rows for a shared database are committed to
    the spool first."""
    parsed = urls.parse_url(ledger_url)
    return ledger_url if urls.file_of(parsed) else f"sqlite:///{path_for(parsed)}"
