"""The master of our own process."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from addon.run.master import hear_no_half_made_loops


def test_a_loop_that_was_interrupted_as_it_was_made_says_nothing(monkeypatch: pytest.MonkeyPatch):
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    hear_no_half_made_loops()
    of_loop = SimpleNamespace(object=vars(asyncio.BaseEventLoop)["__del__"])
    other = SimpleNamespace(object=print)
    for failure in (of_loop, other):
        sys.unraisablehook(failure)
    assert said == [other]
