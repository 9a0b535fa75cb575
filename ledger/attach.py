"""Edge. What parts attach to the core: which parts are there, and what their rows name, imported
when it is asked for.

The core asks for an attach point by its name, as in `attached("companion")`, and uses what comes.
It never imports a part. A part whose folder was deleted is not there, and neither is one that uses
it.
"""

from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any

from ledger import parts
from ledger.part import Command, Part

_PREFIX = __name__.removesuffix("ledger.attach")
"""What stands before `addon` and `ledger`: nothing in a checkout, `tokentee.` in a wheel."""


def attached(point: str, rows: Iterable[Part] = parts.PARTS) -> list[Any]:
    """What the parts that are there attach to a point, in the order of the table."""
    return [
        loaded(f"{part.package}.{module}", attribute)
        for part in rows
        if any(at == point for at, _ in part.attaches) and not missing_for(part)
        for at, place in part.attaches
        if at == point
        for module, attribute in [place.split(":")]
    ]


def commands_of(parts: Iterable[Part]) -> tuple[tuple[Command, ...], dict[str, str]]:
    """The commands of the parts that are there; and those of others -> what is missing for them."""
    there: list[Command] = []
    missing: dict[str, str] = {}
    for part in parts:
        if lacking := missing_for(part):
            missing |= {command.name: ", ".join(lacking) for command in part.commands}
        else:
            there += part.commands
    return tuple(there), missing


def with_options(
    command: Callable[..., None], options: Iterable[Callable[..., None]]
) -> Callable[..., None]:
    """A command that takes the options of parts, too.

    An option is a function whose first parameter is it. If it is given, the function is called in
    the command's place, with the value and with the command's own options.
    """
    answers = {next(iter(signature(option).parameters)): option for option in options}
    if not answers:
        return command

    @wraps(command)
    def called(**given: Any) -> None:
        values = {name: given.pop(name) for name in answers}
        for name, value in values.items():
            if value is not None:
                answers[name](value, given)
                return
        command(**given)

    own = signature(command)
    added = {name: answers[name].__annotations__[name] for name in answers}
    further = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in added.items()
    ]
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), *further])  # type: ignore[attr-defined]
    called.__annotations__ = {**command.__annotations__, **added}
    return called


def missing_for(part: Part) -> tuple[str, ...]:
    """The packages that a part lacks, its own included; empty: it can work."""
    return tuple(name for name in (part.package, *part.uses) if not _is_there(name))


def loaded(module: str, attribute: str) -> Any:
    """An attribute of one of our modules, named as in a checkout."""
    return getattr(import_module(_PREFIX + module), attribute)


@cache
def _is_there(package: str) -> bool:
    found = find_spec(_PREFIX + package)
    # A folder without `__init__.py`, such as one with old byte code alone, has no origin.
    return found is not None and found.origin is not None
