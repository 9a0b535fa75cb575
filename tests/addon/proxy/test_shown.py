"""What mitmweb is given: comments, which are bounded; lines of the log, by figures worked out by hand; and what `/readyz` knows of the threads of a process."""

import asyncio
import contextlib
import threading
import time

from mitmproxy import flow, hooks
from mitmproxy.test import taddons, tflow
from msgspec.structs import replace

from addon.metering.memory_budget import MemoryBudget
from addon.metering.settlement import Settled
from addon.parts.telemetry.observer import Observer
from addon.parts.telemetry.watching import Watching
from addon.proxy import shown
from addon.proxy.health import problems
from addon.proxy.shown import BookedFlow, FlowComments, comment_of, comments_if_viewed, line_of
from addon.recordings.capture import CaptureFiles
from ledger.model.exchange import Outcome, UsageSource
from ledger.model.usage import Usage
from ledger.store.processes import supervision
from ledger.store.writing.incoming import Receipt
from tests.addon.recordings.test_capture import captured
from tests.ledger.written import charge, priced, reading, settled, writing
from tests.named import for_each, named


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


async def commit(comments, *exchanges, committed=True):
    """As the writer does, then one turn of the loop."""
    price = comments.pricing(priced)
    passed: list[Receipt] = []
    done = comments.on_commit(passed.extend)
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
    """Comments and a view of one master."""
    view = View()
    with taddons.context(view) as context:
        yield FlowComments(context.master, asyncio.get_running_loop()), view


async def test_a_master_without_a_view_gets_none():
    with taddons.context() as context:
        assert comments_if_viewed(context.master, asyncio.get_running_loop()) is None
    with taddons.context(View()) as context:
        assert comments_if_viewed(context.master, asyncio.get_running_loop()) is not None


async def test_a_commit_writes_the_comment_and_tells_the_view():
    async with viewing() as (comments, view):
        found = view.add()
        await commit(comments, settled(found.id))
        assert found.comment == "in 100 (40 cached) out 20 · $0.0000000016"
        assert view.updated == [found]
        await commit(comments, settled("somebody else's"))
        assert view.updated == [found]


async def test_what_was_not_committed_is_not_shown():
    async with viewing() as (comments, view):
        found = view.add()
        await commit(comments, settled(found.id), committed=False)
        assert found.comment == ""


async def test_a_persons_comment_stays():
    async with viewing() as (comments, view):
        found = view.add()
        found.comment = "look at this one"
        await commit(comments, settled(found.id))
        assert found.comment == "look at this one"


async def test_the_responses_of_a_websocket_share_a_flow():
    async with viewing() as (comments, view):
        found = view.add()
        await commit(comments, settled(f"{found.id}/1"))
        await commit(comments, settled(f"{found.id}/2"))
        assert found.comment.startswith("2 responses · in 200")


@for_each("outcome, is_marked", [(Outcome.COMPLETE, False), (Outcome.CLIENT_LEFT, True)])
async def test_a_client_that_left_after_the_end_makes_no_red_mark(outcome, is_marked):
    async with viewing() as (comments, view):
        found = view.add()
        found.error = flow.Error("Client disconnected.")
        await commit(comments, replace(settled(found.id), outcome=outcome))
        assert (found.error is not None) is is_marked


async def test_what_is_kept_of_flows_is_bounded(monkeypatch):
    monkeypatch.setattr(shown, "FLOWS_MAX", 2)
    monkeypatch.setattr(shown, "HELD_MAX", 2)

    async with viewing() as (comments, view):
        flows = [view.add() for _ in range(3)]
        for found in flows:
            await commit(comments, settled(found.id))
        assert list(comments._booked) == [flows[1].id, flows[2].id]
        price = comments.pricing(priced)
        for name in "abc":
            price(settled(name), reading(settled(name)))
        assert list(comments._priced) == ["b", "c"]


def test_the_hook_is_mitmproxys():
    assert hooks.UpdateHook.name == "update"


EXCHANGE = settled("one")


def booked(*charges, outcome=Outcome.COMPLETE, **read):
    exchange = replace(EXCHANGE, outcome=outcome, degraded=read.pop("degraded", None))
    usage = Usage(input_tokens=1204, cache_read_tokens=1024, output_tokens=87)
    return BookedFlow(
        exchange=exchange, reading=reading(exchange, **{"usage": usage, **read}), charges=charges
    )


IN = charge("uncached_input", 180, 10**7)
"""0.0018 USD"""
OUT = charge("output", 87, 1_494_253_0)
UNKNOWN = charge("output", 87, None, reason="no price for 'x'")


@for_each(
    "one, comment",
    named(
        {
            "plain": (booked(IN), "in 1 204 (1 024 cached) out 87 · $0.0018"),
            "sum": (booked(IN, OUT), "in 1 204 (1 024 cached) out 87 · $0.0031"),
            "lower-bound": (booked(IN, UNKNOWN), "in 1 204 (1 024 cached) out 87 · ≥ $0.0018"),
            "unpriced": (booked(UNKNOWN), "in 1 204 (1 024 cached) out 87 · unpriced"),
            "no-line": (booked(), "in 1 204 (1 024 cached) out 87 · unpriced"),
            "tiny": (
                booked(charge("output", 1, 31), usage=Usage(output_tokens=1)),
                "in ? out 1 · $0.000000000031",
            ),
            "estimated": (
                booked(IN, usage_source=UsageSource.ESTIMATED, outcome=Outcome.CLIENT_LEFT),
                "in ~1 204 (1 024 cached) out ~87 · ~$0.0018 · client left",
            ),
            "error": (
                booked(usage_source=UsageSource.NONE, usage=Usage(), outcome=Outcome.HTTP_ERROR),
                "no usage reported · http error",
            ),
            "degraded": (
                booked(IN, degraded="KeyError"),
                "in 1 204 (1 024 cached) out 87 · $0.0018 · degraded",
            ),
        }
    ),
)
def test_a_comment_is_one_line(one, comment):
    assert comment_of([one]) == comment


def test_the_responses_of_a_websocket_are_added_up():
    empty = booked(usage_source=UsageSource.NONE, usage=Usage())
    assert comment_of([booked(IN), booked(IN), empty]) == (
        "3 responses · in 2 408 (2 048 cached) out 174 · $0.0036"
    )


LOGGED = settled("e", seconds=0.842)
OF_LOGGED = reading(LOGGED)


def test_a_line_names_model_tokens_cost_outcome_and_time():
    line = line_of(Settled(LOGGED, OF_LOGGED), lambda *_: (charge("output", 1, 3_100_000_000),))
    assert line == "model-1 in 100 (40 cached) out 20 $0.0031 complete 842 ms"


def test_what_is_not_known_is_no_zero():
    unknown = Settled(replace(LOGGED, settled_at=None), replace(OF_LOGGED, usage=Usage()))
    unpriced, priced = charge("output", 1, None), charge("output", 1, 10**12)
    assert line_of(unknown, lambda *_: ()) == "model-1 in - out - - complete -"
    assert " unpriced " in line_of(unknown, lambda *_: (unpriced,))
    assert " >= $1.00 " in line_of(unknown, lambda *_: (unpriced, priced))


def test_hostile_text_cannot_reach_the_terminal():
    exchange = replace(LOGGED, response_model="\x1b[2Jm\nx")
    line = line_of(Settled(exchange, OF_LOGGED), lambda *_: ())
    assert "\x1b" not in line
    assert "\n" not in line


def test_a_capture_writer_that_does_not_work_is_a_problem(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 30)  # until it is closed
    captures = CaptureFiles(tmp_path / "captures", node="n", budget=MemoryBudget())
    watching = Watching()
    with writing(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as written:
        watching.start(written.ledger, open_exchanges=lambda: 3, captures=lambda: captures)
        try:
            assert problems(watching.health()) == []
            captures.write(captured(captures.begin()))
            assert problems(watching.health()) == []
            monkeypatch.setattr(MemoryBudget, "release", lambda *_: 1 / 0)
            for _ in range(supervision.FAILURES_AT_END_MAX + 2):
                captures.write(captured(captures.begin()))
            captures.close(30)
            (problem,) = problems(watching.health())
        finally:
            watching.stop(10)
    assert problem.startswith("a thread does not work: capture writer: ZeroDivisionError")
    assert "the capture writer failed" in capfd.readouterr().err


def test_a_telemetry_thread_that_does_not_work_is_a_problem(tmp_path, monkeypatch, capfd):
    failed = threading.Event()

    def fail(_: Observer) -> None:
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 30)
    monkeypatch.setattr(Observer, "_run", fail)
    watching = Watching()
    with writing(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as written:
        watching.start(written.ledger, open_exchanges=lambda: 0)
        try:
            assert failed.wait(10)
            for _ in range(1_000):
                if watching.observer.health().error is not None:
                    break
                time.sleep(0.01)
            (problem,) = problems(watching.health())
        finally:
            watching.stop(10)
    assert problem.startswith("a thread does not work: telemetry: ZeroDivisionError in ")
    assert "the telemetry failed" in capfd.readouterr().err
