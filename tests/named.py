"""Tables of cases, each with a name."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import pytest


def named(cases: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """The name of a case, which the test's id has -> the values of its parameters."""
    return [pytest.param(*values, id=name) for name, values in cases.items()]


PARAM = pytest.param()


def for_each(
    names: str, cases: Iterable[Any], *, ids: Iterable[Any] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """`pytest.mark.parametrize` as one test, for cases that need nothing made anew for each but
    `monkeypatch` and `tmp_path`: it runs all of them, and then says which ones failed, and how.

    A test of its own costs 10 ms, most cases less than 1.
    """
    parameters = [name.strip() for name in names.split(",")]
    rows = [
        case
        if isinstance(case, type(PARAM))
        else pytest.param(*(case if parameters[1:] else (case,)))
        for case in cases
    ]
    assert rows, "no cases"
    assert not any(row.marks for row in rows), "a case with marks is a test of its own"
    told = iter(() if ids is None or callable(ids) else ids)
    table = [
        (
            row.id
            or next(told, None)
            or " ".join(str(ids(value)) if callable(ids) else repr(value) for value in row.values),
            dict(zip(parameters, row.values, strict=True)),
        )
        for row in rows
    ]

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(test)
        patches = "monkeypatch" in signature.parameters
        left = [
            one
            for name, one in signature.parameters.items()
            if name not in parameters and name != "monkeypatch"
        ]

        @wraps(test)
        def run_all(**fixtures: Any) -> None:
            failed = []
            folder = fixtures.get("tmp_path")
            for number, (name, values) in enumerate(table):
                if folder is not None:
                    fixtures["tmp_path"] = folder / str(number)
                    fixtures["tmp_path"].mkdir()
                try:
                    with pytest.MonkeyPatch.context() as patch:
                        more = {"monkeypatch": patch} if patches else {}
                        running = test(**values, **fixtures, **more)
                        if inspect.iscoroutine(running):
                            asyncio.run(running)
                except pytest.skip.Exception as error:
                    raise AssertionError("a case that is skipped is a test of its own") from error
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below
                    error.add_note(f"case {name}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} cases", failed)

        run_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run_all

    return decorate
