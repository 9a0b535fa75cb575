"""What a worker's addon counts, tells and closes; the whole is in tests/proxy/test_workers.py."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow

from addon.run.workers import attendant as module
from addon.run.workers.attendant import Attendant
from addon.run.workers.board import Board
from addon.run.workers.messages import Job


@pytest.fixture
def attendant(tmp_path: Path) -> Iterator[Attendant]:
    job = Job(
        number=1, words=(), set_names=(), with_proxyauth=False, trusted="", listeners=(),
        folder=str(tmp_path), seat=0, seats=3,
    )  # fmt: skip
    with socket.socket() as control:
        yield Attendant(job, control)


class Handler:
    """A connection as mitmproxy's Proxyserver has it."""

    def __init__(self, flow, *, silent_seconds: float = 0.0, blocker: int = 0) -> None:
        self.client = flow.client_conn
        self.timeout_watchdog = SimpleNamespace(
            last_activity=time.time() - silent_seconds, blocker=blocker
        )
        self.cancelled: list[str] = []
        task = SimpleNamespace(cancel=self.cancelled.append)
        self.transports = {self.client: SimpleNamespace(handler=task)}


def is_busy(attendant: Attendant, handler: Any) -> bool:
    return attendant._is_busy(handler)


def test_a_connection_is_busy_while_an_exchange_is_under_way(attendant: Attendant):
    flow = tflow.tflow(resp=True)
    handler = Handler(flow)
    assert not is_busy(attendant, handler)
    attendant.requestheaders(flow)
    assert is_busy(attendant, handler)
    attendant.response(flow)
    assert not is_busy(attendant, handler)
    assert is_busy(attendant, Handler(flow, blocker=1)), "a hook waits, as for a commit"


def test_streams_of_one_connection_and_websockets_count_each(attendant: Attendant):
    one, two = tflow.tflow(), tflow.tflow()
    two.client_conn = one.client_conn
    handler = Handler(one)
    attendant.requestheaders(one)
    attendant.requestheaders(two)
    attendant.error(one)
    assert is_busy(attendant, handler)
    attendant.response(two)
    attendant.websocket_start(two)
    assert is_busy(attendant, handler)
    attendant.websocket_end(two)
    assert not is_busy(attendant, handler)
    attendant.error(two)
    assert not is_busy(attendant, handler), "an end too many changes nothing"


def test_a_tunnel_is_busy_until_a_request_is_seen_in_it(attendant: Attendant):
    flow = tflow.tflow()
    handler = Handler(flow)
    attendant.http_connect(flow)
    assert is_busy(attendant, handler)
    attendant.requestheaders(flow)
    attendant.response(flow)
    assert not is_busy(attendant, handler)
    attendant.http_connect(flow)
    attendant.client_disconnected(flow.client_conn)
    assert not is_busy(attendant, handler)


def test_only_a_retiring_worker_tells_a_client_that_its_connection_ends(attendant: Attendant):
    flow = tflow.tflow(resp=True)
    assert flow.response is not None
    attendant.responseheaders(flow)
    assert "connection" not in flow.response.headers
    attendant._retiring = True
    attendant.responseheaders(flow)
    assert flow.response.headers["connection"] == "close"
    for changes in ({"status_code": 101}, {}):
        other = tflow.tflow(resp=True)
        assert other.response is not None
        other.response.status_code = changes.get("status_code", 200)
        other.request.http_version = "HTTP/1.1" if changes else "HTTP/2.0"
        attendant.responseheaders(other)
        assert "connection" not in other.response.headers


def test_connections_are_on_the_board_while_it_accepts(attendant: Attendant, tmp_path: Path):
    board = Board(tmp_path)
    board.write(1, 1)
    attendant.count(1)
    assert board.is_least(1, 3), "not on it yet"
    attendant._accepts = True
    attendant.count(-1)
    assert not board.is_least(1, 3)
    attendant.done()
    assert board.is_least(1, 3)


async def test_a_retiring_worker_closes_silent_connections_and_stops_with_the_last(
    attendant: Attendant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "IDLE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    server = Proxyserver()
    busy, silent = Handler(tflow.tflow()), Handler(tflow.tflow(), silent_seconds=60)
    server.connections = {"busy": busy, "silent": silent}  # type: ignore[dict-item]
    busy_flow = tflow.tflow()
    busy_flow.client_conn = busy.client
    attendant.requestheaders(busy_flow)
    with taddons.context(server):
        retiring = asyncio.create_task(attendant._retire())
        async with asyncio.timeout(10):
            while not silent.cancelled:
                await asyncio.sleep(0.01)
            del server.connections["silent"]
            attendant.response(busy_flow)
            while not busy.cancelled:
                await asyncio.sleep(0.01)
            server.connections.clear()
            await retiring
        assert ctx.master.should_exit.is_set()
