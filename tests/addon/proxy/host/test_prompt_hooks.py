"""Hooks are called in the turn of their event, and otherwise as by mitmproxy."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import addonmanager, exceptions, http, tcp
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http._hooks import (
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHook,
)
from mitmproxy.proxy.layers.tcp import TcpEndHook
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.test import tflow
from mitmproxy.utils import asyncio_utils

from addon.proxy.host import hook_lists, prompt_hooks
from addon.proxy.host.hook_lists import HookLists
from addon.proxy.host.prompt_hooks import PromptHooks
from tests.addon.proxy.host.places import place

HOOKS = (HttpRequestHeadersHook, HttpRequestHook, HttpResponseHook)
TURNS_MAX = 100
"""Of the event loop; what is played takes less than ten."""


class Layers:
    """A stand-in for layers: asks for hooks, and notes what it is told."""

    def __init__(self, seen: list[str], flows: list[http.HTTPFlow]) -> None:
        self._seen = seen
        self._flows = flows

    def handle_event(self, event: events.Event) -> Generator[commands.Command, Any, None]:
        if isinstance(event, events.Start):
            for each in self._flows:
                yield HOOKS[0](each)
            yield commands.Log("asked for all")
        elif isinstance(event, events.HookCompleted):
            hook = event.command
            (of,) = hook.args()
            self._seen.append(f"{hook.name} of {self._flows.index(of)} is over")
            later = HOOKS[HOOKS.index(type(hook)) + 1 :]
            if later:
                yield later[0](of)
        else:
            yield HttpRequestHook(self._flows[0])
            raise RuntimeError("a bug of a layer")  # noqa: TRY004


class Noting:
    """An addon that notes its hooks, and does something in one of them."""

    def __init__(
        self, seen: list[str], flows: list[http.HTTPFlow], does: Callable[[http.HTTPFlow], Any]
    ) -> None:
        self._seen = seen
        self._flows = flows
        self._does = does
        self.name = str(id(self))

    def _note(self, name: str, of: http.HTTPFlow) -> Any:
        self._seen.append(f"{name} of {self._flows.index(of)}")
        return self._does(of) if name == "request" else None

    def requestheaders(self, flow: http.HTTPFlow) -> Any:
        return self._note("requestheaders", flow)

    def request(self, flow: http.HTTPFlow) -> Any:
        return self._note("request", flow)

    def response(self, flow: http.HTTPFlow) -> Any:
        return self._note("response", flow)


class Hearing(Noting):
    """It has the hook of what has changed, too."""

    def update(self, flows: list[http.HTTPFlow]) -> None:
        self._seen.append(f"update of {self._flows.index(flows[0])}")


def nothing(_: http.HTTPFlow) -> None:
    """What most hooks do in the end."""


def fails(_: http.HTTPFlow) -> None:
    raise ValueError("a bug of an addon")


def halts(_: http.HTTPFlow) -> None:
    raise exceptions.AddonHalt


def raises_through(_: http.HTTPFlow) -> None:
    raise exceptions.OptionsError("mitmproxy lets this through")


def fails_later(_: http.HTTPFlow) -> Awaitable[None]:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("a bug of an addon")

    return fail()


def waits(_: http.HTTPFlow) -> Awaitable[None]:
    return asyncio.sleep(0.001)


def waits_in_a_task(_: http.HTTPFlow) -> Awaitable[None]:
    async def wait() -> None:
        async with asyncio.timeout(10):  # belongs to one task
            await asyncio.sleep(0)

    return wait()


def intercepts(of: http.HTTPFlow) -> None:
    of.intercept()
    asyncio.get_running_loop().call_later(0.001, of.resume)


def handler_of(master: Master) -> ProxyConnectionHandler:
    """mitmproxy's handler of a client."""
    writer = SimpleNamespace(get_extra_info=lambda _, default=None: default)
    mode = ProxyMode.parse("regular")
    return ProxyConnectionHandler(master, None, writer, master.options, mode)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Tasks begin at once, as in mitmproxy."""

    async def eagerly() -> None:
        with asyncio_utils.set_eager_task_factory():
            await scenario

    asyncio.run(eagerly())


async def master_of(*addons: object) -> Master:
    master = Master(Options())
    Proxyserver().load(addonmanager.Loader(master))
    master.addons.add(*addons)
    return master


@asynccontextmanager
async def connected(
    layers: Any, *addons: object, is_prompt: bool = True
) -> AsyncIterator[ProxyConnectionHandler]:
    """mitmproxy's handler of a client, in front of these layers."""
    master = await master_of(*addons)
    give_back = hook_lists.install(place(master.addons))
    assert isinstance(master.addons, HookLists)
    handler = handler_of(master)
    handler.layer = layers
    if is_prompt:
        handler.layer = PromptHooks(layers, handler, master.addons)  # type: ignore[assignment]
    yield handler
    give_back()
    await master.done()


async def later_turns() -> None:
    """Let others have more turns than anything here takes."""
    for _ in range(20):
        await asyncio.sleep(0)


def play(
    does: Callable[[http.HTTPFlow], Any],
    *,
    is_prompt: bool,
    flows: int = 1,
    turns: int = TURNS_MAX,
    hears: bool = False,
) -> list[str]:
    """What addons and layers see of some flows that begin at once."""
    seen: list[str] = []
    of = [tflow.tflow() for _ in range(flows)]

    async def scenario() -> None:
        kind = Hearing if hears else Noting
        addons = Noting(seen, of, does), kind(seen, of, nothing)
        async with connected(Layers(seen, of), *addons, is_prompt=is_prompt) as handler:
            await handler.server_event(events.Start())
            for _ in range(turns):
                await asyncio.sleep(0.001 if turns == TURNS_MAX else 0)
                if len([line for line in seen if "response" in line and "over" in line]) == flows:
                    break

    run(scenario())
    return seen


@pytest.fixture
def slow_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds that much time has passed."""
    clock = iter(range(10_000))
    monkeypatch.setattr(prompt_hooks, "monotonic", lambda: float(next(clock)))


def by_flow(seen: list[str]) -> list[str]:
    """What is seen of one flow after what is seen of another."""
    return sorted(seen, key=lambda line: line.split(" of ")[1][0])


@pytest.mark.parametrize("hears", [False, True])
@pytest.mark.parametrize("flows", [1, 3])
@pytest.mark.parametrize(
    "does", [nothing, fails, halts, fails_later, waits, waits_in_a_task, intercepts]
)
def test_addons_and_layers_see_the_same_in_the_same_order(
    does: Callable[[http.HTTPFlow], Any], flows: int, hears: bool, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.CRITICAL):
        theirs = play(does, is_prompt=False, flows=flows, hears=hears)
        ours = play(does, is_prompt=True, flows=flows, hears=hears)
    assert by_flow(ours) == by_flow(theirs)
    assert len([line for line in ours if line.startswith("response") and "over" in line]) == flows


def test_one_that_is_let_through_ends_its_flow_as_by_mitmproxy(caplog: pytest.LogCaptureFixture):
    seen = []
    for is_prompt in (False, True):
        caplog.clear()
        with caplog.at_level(logging.CRITICAL, logger="asyncio"):
            seen.append(play(raises_through, is_prompt=is_prompt, turns=10))
    assert seen[0] == seen[1]
    assert seen[0][-1] == "request of 0"


KEPT = ContextVar("KEPT", default="as it was")


@pytest.mark.parametrize("is_prompt", [False, True])
def test_what_a_hook_sets_in_its_context_is_seen_behind_it_in_this_hook_alone(is_prompt: bool):
    found: list[str] = []

    def keeps(_: http.HTTPFlow) -> Awaitable[None]:
        async def look() -> None:
            await asyncio.sleep(0)
            found.append(KEPT.get())

        found.append(KEPT.get())
        KEPT.set("changed")
        return look()

    play(keeps, is_prompt=is_prompt, flows=2)
    assert sorted(found) == ["as it was", "as it was", "changed", "changed"]


@pytest.mark.usefixtures("slow_turns")
@pytest.mark.parametrize("flows", [1, 3])
def test_after_a_long_turn_the_order_is_the_same(flows: int):
    assert play(nothing, is_prompt=True, flows=flows) == play(nothing, is_prompt=False, flows=flows)


def first_turn() -> list[str]:
    """What is called before the first event of a connection is over."""
    seen: list[str] = []
    in_this_turn: list[str] = []
    of = [tflow.tflow()]

    async def scenario() -> None:
        async with connected(Layers(seen, of), Noting(seen, of, nothing)) as handler:
            handler.log = lambda message, *_: seen.append(message)  # type: ignore[method-assign]
            await handler.server_event(events.Start())
            in_this_turn.extend(seen)
            await later_turns()

    run(scenario())
    return in_this_turn


def test_hooks_are_called_and_over_in_the_turn_of_their_event():
    assert first_turn() == [
        "requestheaders of 0",
        "asked for all",
        "requestheaders of 0 is over",
        "request of 0",
        "request of 0 is over",
        "response of 0",
        "response of 0 is over",
    ]


@pytest.mark.usefixtures("slow_turns")
def test_in_a_turn_that_has_taken_long_the_layers_do_not_go_on():
    assert first_turn() == ["requestheaders of 0", "asked for all"]


@pytest.mark.parametrize("is_prompt", [False, True])
def test_a_hook_is_called_though_its_event_crashes(
    is_prompt: bool, caplog: pytest.LogCaptureFixture
):
    seen: list[str] = []
    of = [tflow.tflow()]

    async def scenario() -> None:
        addon = Noting(seen, of, nothing)
        async with connected(Layers(seen, of), addon, is_prompt=is_prompt) as handler:
            await handler.server_event(events.DataReceived(handler.client, b""))
            await later_turns()

    run(scenario())
    assert seen[:2] == ["request of 0", "request of 0 is over"]
    assert "mitmproxy has crashed!" in caplog.text


def test_a_hook_that_nobody_waits_for_is_called_and_not_answered():
    seen: list[str] = []

    class Ending:
        name = "ending"

        def tcp_end(self, flow: tcp.TCPFlow) -> None:
            seen.append("tcp_end")

    class Once:
        def handle_event(self, event: events.Event) -> Iterator[commands.Command]:
            seen.append(type(event).__name__)
            hook = TcpEndHook(tflow.ttcpflow())
            hook.blocking = False
            yield hook

    async def scenario() -> None:
        async with connected(Once(), Ending()) as handler:
            assert list(handler.layer.handle_event(events.Start())) == []

    run(scenario())
    assert seen == ["Start", "tcp_end"]


def test_connections_are_taken_over_and_left_alone_again():
    async def scenario() -> None:
        master = await master_of()
        layers: list[type] = []

        async def note(self: ProxyConnectionHandler) -> None:
            layers.append(type(self.layer))

        give_back = hook_lists.install(place(master.addons))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConnectionHandler, "handle_client", note)
            uninstall = prompt_hooks.install(place(master.addons))
            handler = handler_of(master)
            await handler.handle_client()
            assert handler.layer.context.client is handler.client  # as of the layer behind
            other = Master(Options())
            await handler_of(other).handle_client()  # of another master
            await other.done()
            uninstall()
            await handler_of(master).handle_client()
        give_back()
        await master.done()
        assert [kind is PromptHooks for kind in layers] == [True, False, False]

    run(scenario())


def test_a_manager_that_was_given_back_calls_hooks_as_mitmproxy():
    seen: list[str] = []
    of = [tflow.tflow()]

    async def scenario() -> None:
        async with connected(Layers(seen, of), Noting(seen, of, nothing)) as handler:
            handler.master.addons.__class__ = addonmanager.AddonManager
            await handler.server_event(events.Start())
            await later_turns()

    run(scenario())
    assert seen[-1] == "response of 0 is over"
