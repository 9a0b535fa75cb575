"""The manager that looks hooks up once calls what mitmproxy's own would, in its order."""

import asyncio

import pytest
from mitmproxy import addonmanager, exceptions, log
from mitmproxy.hooks import Hook
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook
from mitmproxy.test import tflow

from addon.parts.fast.hook_lists import HookLists, install
from addon.proxy.sources import UnknownSourceError
from tests.addon.parts.fast.place import place


class Noting:
    def __init__(self, name: str, seen: list[str], *, children=(), does=None) -> None:
        self.name = name
        self.addons = list(children)
        self._seen = seen
        self._does = does

    def request(self, flow):
        self._seen.append(self.name)
        if self._does:
            raise self._does


class NotingLater(Noting):
    async def request(self, flow):
        await asyncio.sleep(0)
        self._seen.append(self.name)


class WithoutHook:
    name = "without"


def run(make, *, taken_over: bool) -> list[str]:
    """What is called for one event, by either manager, as these addons come and go."""
    seen: list[str] = []

    async def play() -> None:
        master = Master(Options())
        give_back = install(place(master.addons)) if taken_over else None
        assert isinstance(master.addons, HookLists) is taken_over
        for step in make(seen):
            step(master.addons)
            await master.addons.trigger_event(HttpRequestHook(tflow.tflow()))
        if give_back is not None:
            give_back()
        await master.done()  # takes its log handlers off

    asyncio.run(play())
    return seen


def several(seen):
    a, b = Noting("a", seen, children=[Noting("a1", seen)]), NotingLater("b", seen)
    yield lambda manager: manager.add(a, WithoutHook(), b)
    yield lambda manager: manager.add(Noting("c", seen))
    yield lambda manager: manager.remove(a)


def failing(seen):
    yield lambda manager: manager.add(
        Noting("a", seen, does=ValueError("a bug"), children=[Noting("a1", seen)]),
        Noting("b", seen),
    )


def halting(seen):
    yield lambda manager: manager.add(
        Noting("a", seen, does=exceptions.AddonHalt()), Noting("b", seen)
    )


class Odd:
    """An attribute that has a hook's name and is none: mitmproxy says so, and calls the others."""

    name = "odd"
    request = "not a function"


def odd(seen):
    yield lambda manager: manager.add(Noting("a", seen), Odd(), Noting("b", seen))


@pytest.mark.parametrize(
    ("make", "logged"),
    [
        (several, []),
        (failing, ["Addon error: a bug"]),
        (halting, []),
        (odd, ["Addon error: Addon handler request"]),
    ],
)
def test_the_same_is_called_in_the_same_order_and_logged(
    make, logged: list[str], caplog: pytest.LogCaptureFixture
):
    found = []
    for taken_over in (False, True):
        caplog.clear()
        called = run(make, taken_over=taken_over)
        said = [record.getMessage().split(" (")[0] for record in caplog.records]
        found.append((called, said, [bool(record.exc_info) for record in caplog.records]))
    assert found[0] == found[1]
    called, said, _ = found[0]
    assert called
    assert [line[: len(wanted)] for line, wanted in zip(said, logged, strict=True)] == logged


class Hearing:
    name = "hearing"

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def add_log(self, entry: log.LogEntry) -> None:
        self._heard.append(entry.msg)


async def test_who_comes_later_hears_what_is_triggered_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
):
    walked: list[str] = []
    walk = addonmanager.AddonManager.trigger

    def counted(self: addonmanager.AddonManager, event: Hook) -> None:
        if isinstance(event, log.AddLogHook):
            walked.append(event.entry.msg)
        walk(self, event)

    monkeypatch.setattr(addonmanager.AddonManager, "trigger", counted)
    heard: list[str] = []
    master = Master(Options())
    give_back = install(place(master.addons))
    hearing = Hearing(heard)
    for number, step in enumerate([lambda: None, lambda: master.addons.add(hearing)]):
        step()
        master.addons.trigger(log.AddLogHook(log.LogEntry(f"line {number}", "info")))
    master.addons.remove(hearing)
    master.addons.trigger(log.AddLogHook(log.LogEntry("line 2", "info")))
    give_back()
    await master.done()
    assert "line 1" in heard
    assert not {"line 0", "line 2"}.intersection(heard)
    assert [line for line in walked if line.startswith("line ")] == ["line 1"]


async def test_a_manager_is_taken_over_and_given_back():
    master = Master(Options())
    manager = master.addons
    give_back = install(place(manager))
    assert type(manager) is HookLists
    with pytest.raises(UnknownSourceError):
        install(place(manager))  # a second one leaves it to the first
    assert type(manager) is HookLists
    give_back()
    assert type(manager) is addonmanager.AddonManager
    await master.done()
