"""Cases of a parametrized test, each with a name."""

from collections.abc import Mapping
from typing import Any

import pytest


def named(cases: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    """The name of a case, which the test's id has -> the values of its parameters."""
    return [pytest.param(*values, id=name) for name, values in cases.items()]
