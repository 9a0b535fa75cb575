"""Pure. Shapes: the keys that make a JSON object a request or an answer of a dialect.

On a host outside the table of providers, a path alone does not confirm an LLM call: a form service
posts to `/api/forms/7/responses`, a chat server to `/messages`. There the request body or the
answer must fit a shape of its path's dialect. A shape names keys, dotted for objects inside
objects, and a check for each value; it fits if all checks pass. Shapes require only keys that every
call has, because missing a call is as wrong as recording other traffic.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from addon.dialects.counts import lookup

type Check = type[Any] | Callable[[Any], bool]
"""A JSON type, or a function of the value."""
type Shape = Mapping[str, Check]


def text(value: Any) -> bool:
    """Text that is not empty."""
    return isinstance(value, str) and value != ""


def count(value: Any) -> bool:
    """A number that is not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def anything(value: Any) -> bool:
    """Any value but null."""
    return value is not None


def objects(value: Any) -> bool:
    """A list of objects that is not empty."""
    return isinstance(value, list) and len(value) > 0 and isinstance(value[0], dict)


def prompt(value: Any) -> bool:
    """Input as models take it: text, or a list of text, tokens or parts."""
    return text(value) or (isinstance(value, list) and len(value) > 0)


def messages(value: Any) -> bool:
    """Messages of a conversation, each with its role."""
    return objects(value) and isinstance(value[0].get("role"), str)


def with_key(key: str) -> Check:
    """A list of objects, the first of which has this key."""
    return lambda value: objects(value) and key in value[0]


def one_of(*values: str) -> Check:
    """Exactly one of these texts."""
    return lambda value: value in values if isinstance(value, str) else False


def beginning(*prefixes: str) -> Check:
    """Text that begins with one of these."""
    return lambda value: isinstance(value, str) and value.startswith(prefixes)


def fits(shapes: Iterable[Shape], body: Mapping[str, Any]) -> bool:
    """Whether a body has one of these shapes."""
    for shape in shapes:
        for path, check in shape.items():
            value = lookup(body, path) if "." in path else body.get(path)
            if not (isinstance(value, check) if isinstance(check, type) else check(value)):
                break
        else:
            return True
    return False
