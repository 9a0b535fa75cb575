"""Long work takes turns with the other tasks of the event loop."""

import asyncio
import time
from collections.abc import Generator

import pytest

from addon.metering.troubles import Troubles
from addon.proxy.turns import in_turns


def work(count: int) -> Generator[None, None, bytes]:
    for _ in range(count):
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        yield
    return b"done"


def test_others_run_between_the_steps():
    seen: list[int] = []

    async def other() -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(0)

    async def scenario() -> bytes | None:
        beside = asyncio.create_task(other())
        found = await in_turns(work(20), Troubles())
        assert beside.done()
        return found

    assert asyncio.run(scenario()) == b"done"
    assert seen == list(range(10))


def test_a_step_that_raises_is_noted(caplog: pytest.LogCaptureFixture):
    def broken() -> Generator[None, None, bytes]:
        yield
        raise ValueError

    troubles = Troubles()
    assert asyncio.run(in_turns(broken(), troubles)) is None
    assert "ValueError" in (troubles.text or "")
    assert "it is not read" in caplog.text
