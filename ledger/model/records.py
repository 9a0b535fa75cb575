"""Pure. Frozen records with many fields, created and copied at a tenth of the usual cost.

`dataclass(frozen=True)` sets each field with `object.__setattr__`, which looks the name up in the
class; `dataclasses.replace` does so too, after a check of each field. For the 52 fields of an
exchange that is 25 µs and more, several times per exchange. The descriptor of a slot sets the same
field without a lookup. The records stay frozen: fields are set only before a record is returned.

The two records of every exchange are msgspec structs, which C code creates and copies: 0.5 µs,
where setting slots one by one takes 6, and 20 for a copy (measured).
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, cast

from msgspec import NODEFAULT, Struct, structs

_new = object.__new__


def with_dataclass_fields[T: Struct](record: type[T]) -> type[T]:
    """Decorator: makes a struct work with `fields`, `replace` and `asdict` of dataclasses."""
    given = [(one.name, Any, _dataclass_field(one)) for one in structs.fields(record)]
    alike = make_dataclass(record.__name__, given, kw_only=True)
    setattr(record, "__dataclass_fields__", cast(Any, alike).__dataclass_fields__)  # noqa: B010  # mypy
    return record


def quick_init[T](record: type[T]) -> type[T]:
    """Decorator: a faster equal `__init__` for a frozen dataclass with slots and keyword-only
    fields."""
    given = fields(record)  # type: ignore[arg-type]  # a dataclass, by contract
    assert not hasattr(record, "__post_init__"), record
    assert all(one.init and one.kw_only for one in given), record
    values: dict[str, Any] = {"given_none": MISSING}
    parameters, steps = [], []
    for one in given:
        name = one.name
        values[f"set_{name}"] = getattr(record, name).__set__
        parameters.append(f"{name}{_default(one, values)}")
        value = name
        if one.default_factory is not MISSING:
            value = f"make_{name}() if {name} is given_none else {name}"
        steps.append(f" set_{name}(self, {value})")
    source = "\n".join([f"def __init__(self, *, {', '.join(parameters)}):", *steps])
    # As dataclasses does it: the code is generated from the names of our own fields.
    exec(source, values)  # noqa: S102
    values["__init__"].__qualname__ = f"{record.__qualname__}.__init__"
    setattr(record, "__init__", values["__init__"])  # noqa: B010  # mypy refuses the plain way
    return record


def changed[T](record: T, **changes: Any) -> T:
    """A copy of a frozen record with slots, some of its fields changed; as `dataclasses.replace`.

    Raises TypeError for an unknown name.
    """
    if isinstance(record, Struct):
        return structs.replace(record, **changes)
    kind = type(record)
    read, setters, by_name = _access(cast(type, kind))
    copy = _new(kind)
    for set_field, value in zip(setters, read(record), strict=True):
        set_field(copy, value)
    for name, value in changes.items():
        if name not in by_name:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        by_name[name](copy, value)
    return copy


type _Set = Callable[[Any, Any], None]


@cache
def _access(
    kind: type,
) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[_Set, ...], dict[str, _Set]]:
    """A getter for all fields of a record at once, and a setter for each of them."""
    names = [one.name for one in fields(kind)]
    by_name = {name: getattr(kind, name).__set__ for name in names}
    return attrgetter(*names), tuple(by_name.values()), by_name


def _dataclass_field(given: structs.FieldInfo) -> Any:
    if given.default_factory is not NODEFAULT:
        return field(default_factory=given.default_factory)
    return field() if given.default is NODEFAULT else field(default=given.default)


def _default(given: Field[Any], values: dict[str, Any]) -> str:
    if given.default_factory is not MISSING:
        values[f"make_{given.name}"] = given.default_factory
        return "=given_none"
    if given.default is not MISSING:
        values[f"default_{given.name}"] = given.default
        return f"=default_{given.name}"
    return ""
