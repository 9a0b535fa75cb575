"""What mitmweb is given: bodies, comments and a content view, all of them bounded."""

import asyncio
import contextlib

import pytest
from mitmproxy import contentviews, flow, hooks
from mitmproxy.test import taddons, tflow
from msgspec.structs import replace

from addon.proxy.display import content_view
from addon.proxy.display.content_view import ExchangeContentview, FlowNotes, notes_if_viewed
from ledger.model.exchange import Outcome
from ledger.store.writing.jobs import Receipt
from tests.ledger.written import priced, reading, settled


class View:
    """mitmproxy's addon of that name, as far as it is asked."""

    name = "view"

    def __init__(self):
        self.flows = {}
        self.updated = []

    def get_by_id(self, flow_id):
        return self.flows.get(flow_id)

    def update(self, flows):
        self.updated += flows

    def add(self):
        found = tflow.tflow(resp=True)
        assert found.response is not None
        found.response.stream = lambda data: data
        found.response.data.content = None
        found.response.headers["content-type"] = "text/event-stream"
        found.comment = ""
        self.flows[found.id] = found
        return found


def pass_body(notes, found, *chunks):
    """As the tap does."""
    listen = notes.listener(found, None)
    for chunk in chunks:
        listen(chunk)
    notes.settled(found)


async def commit(notes, *exchanges, committed=True):
    """As the writer does, then one turn of the loop."""
    price = notes.pricing(priced)
    passed: list[Receipt] = []
    done = notes.on_commit(passed.extend)
    for exchange in exchanges:
        price(exchange, reading(exchange))
    receipts = [Receipt(exchange_id=each.id) for each in exchanges]
    for receipt in receipts:
        receipt.committed = committed
    done(receipts)
    assert passed == receipts
    await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def viewing():
    """Notes and a view of one master."""
    view = View()
    with taddons.context(view) as context:
        yield FlowNotes(context.master, asyncio.get_running_loop()), view


async def test_a_master_without_a_view_gets_none():
    with taddons.context() as context:
        assert notes_if_viewed(context.master, asyncio.get_running_loop()) is None
    with taddons.context(View()) as context:
        assert notes_if_viewed(context.master, asyncio.get_running_loop()) is not None
    assert "Tokentee" in {view.name for view in contentviews.registry.values()}
    contentviews.registry._by_name.pop("tokentee")


async def test_a_stream_keeps_what_passed():
    async with viewing() as (notes, view):
        found = view.add()
        heard: list[bytes] = []
        listen = notes.listener(found, heard.append)
        listen(b"data: ")
        listen(b"{}\n\n")
        notes.settled(found)
        assert found.response.data.content == b"data: {}\n\n"
        assert heard == [b"data: ", b"{}\n\n"]


async def test_a_body_that_mitmproxy_has_is_left_to_it():
    async with viewing() as (notes, view):
        found = view.add()
        found.response.stream = False
        found.response.data.content = b"{}"
        pass_body(notes, found, b"{}")
        assert found.response.data.content == b"{}"
        assert notes._bytes == 0
        notes.settled(view.add())  # never begun
        lonely = tflow.tflow()
        pass_body(notes, lonely, b"x")
        assert notes._bytes == 0


async def test_bodies_are_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(content_view, "BODY_BYTES_MAX", 10)
    monkeypatch.setattr(content_view, "BODIES_BYTES_MAX", 25)

    async with viewing() as (notes, view):
        flows = [view.add() for _ in range(4)]
        for found in flows:
            pass_body(notes, found, b"12345678", b"90abc", b"more")
        assert [found.response.data.content for found in flows] == [
            None, None, b"1234567890", b"1234567890",
        ]  # fmt: skip
        assert notes._bytes == 20
        flows[2].response = None
        pass_body(notes, view.add(), b"1234567890")
        assert notes._bytes == 20


async def test_a_commit_writes_the_comment_and_tells_the_view():
    async with viewing() as (notes, view):
        found = view.add()
        await commit(notes, settled(found.id))
        assert found.comment == "in 100 (40 cached) out 20 · $0.0000000016"
        assert view.updated == [found]
        await commit(notes, settled("somebody else's"))
        assert view.updated == [found]


async def test_what_was_not_committed_is_not_shown():
    async with viewing() as (notes, view):
        found = view.add()
        await commit(notes, settled(found.id), committed=False)
        assert found.comment == ""
        assert notes.latest(found.id) is None


async def test_a_persons_comment_stays():
    async with viewing() as (notes, view):
        found = view.add()
        found.comment = "look at this one"
        await commit(notes, settled(found.id))
        assert found.comment == "look at this one"


async def test_the_responses_of_a_websocket_share_a_flow():
    async with viewing() as (notes, view):
        found = view.add()
        await commit(notes, settled(f"{found.id}/1"))
        await commit(notes, settled(f"{found.id}/2"))
        assert found.comment.startswith("2 responses · in 200")
        metadata = contentviews.Metadata(flow=found, http_message=found.response)
        assert "Answer" not in ExchangeContentview(notes).prettify(b"", metadata)


@pytest.mark.parametrize(
    ("outcome", "is_marked"), [(Outcome.COMPLETE, False), (Outcome.CLIENT_LEFT, True)]
)
async def test_a_client_that_left_after_the_end_makes_no_red_mark(outcome, is_marked):
    async with viewing() as (notes, view):
        found = view.add()
        found.error = flow.Error("Client disconnected.")
        await commit(notes, replace(settled(found.id), outcome=outcome))
        assert (found.error is not None) is is_marked


async def test_what_is_kept_of_flows_is_bounded(monkeypatch):
    monkeypatch.setattr(content_view, "FLOWS_MAX", 2)
    monkeypatch.setattr(content_view, "HELD_MAX", 2)

    async with viewing() as (notes, view):
        flows = [view.add() for _ in range(3)]
        for found in flows:
            await commit(notes, settled(found.id))
        assert notes.latest(flows[0].id) is None
        assert notes.latest(flows[2].id) is not None
        price = notes.pricing(priced)
        for name in "abc":
            price(settled(name), reading(settled(name)))
        assert list(notes._priced) == ["b", "c"]


async def test_the_content_view_is_first_for_what_is_booked_and_nothing_else():
    async with viewing() as (notes, view):
        found, other = view.add(), view.add()
        found.response.data.content = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
        await commit(notes, settled(found.id))
        shown = contentviews.prettify_message(found.response, found, registry=_registry(notes))
        assert shown.view_name == "Tokentee"
        assert "Hi" in shown.text
        assert "uncached_input" in shown.text
        asked = contentviews.prettify_message(found.request, found, registry=_registry(notes))
        assert asked.view_name != "Tokentee"
        other.response.data.content = b"{}"
        plain = contentviews.prettify_message(other.response, other, registry=_registry(notes))
        assert plain.view_name != "Tokentee"
        chosen = contentviews.prettify_message(
            other.response, other, "tokentee", registry=_registry(notes)
        )
        assert "Nothing is booked" in chosen.text
        bare = ExchangeContentview(notes)
        assert bare.render_priority(b"x", contentviews.Metadata()) == -1
        message = contentviews.Metadata(flow=found)
        assert "Answer" in bare.prettify(b"{}", message)


def _registry(notes):
    from mitmproxy.contentviews._registry import ContentviewRegistry

    registry = ContentviewRegistry()
    registry.register(contentviews.registry["raw"])
    registry.register(ExchangeContentview(notes))
    return registry


def test_the_hook_is_mitmproxys():
    assert hooks.UpdateHook.name == "update"
