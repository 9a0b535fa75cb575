"""Edge (reads the source of libraries). Which functions of mitmproxy ours were written for, and how
they are replaced.

A function that is wrapped, replaced or relied on is known by a digest of its source. An argument
that keeps its name says nothing of what the function does now. What cannot be found, read or
recognised is unknown: then nothing is replaced.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

DIGEST_CHARACTERS = 16
"""Of SHA-256. The digests that stand beside what replaces a function are those of mitmproxy 12.2.3
and 12.3.1 and h11 0.16."""


class UnknownSourceError(Exception):
    """This is not the library that ours was written for."""


def check(relied_on: Mapping[str, str]) -> None:
    """Raise UnknownSourceError unless each function or class, `module:name`, has the source whose
    digest is given."""
    for name, digest in relied_on.items():
        try:
            is_same = digest_of(name) == digest
        except Exception as missing:
            raise UnknownSourceError(f"{name}: {type(missing).__name__}") from missing
        if not is_same:
            raise UnknownSourceError(f"another {name}")


def replace_methods(owner: type, **functions: Callable[..., Any]) -> Callable[[], None]:
    """Put functions in the place of a class's methods; returns what puts those back."""
    before = {name: vars(owner).get(name) for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)

    def restore() -> None:
        for name, function in before.items():
            if vars(owner).get(name) is not functions[name]:
                continue  # somebody has wrapped ours since, and would lose that
            if function is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, function)

    return restore


def digest_of(name: str) -> str:
    """The digest of the source of `module:name`. Raises what importing and reading it raises."""
    module, _, path = name.partition(":")
    found: Any = reduce(getattr, path.split("."), importlib.import_module(module))
    return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()[:DIGEST_CHARACTERS]
