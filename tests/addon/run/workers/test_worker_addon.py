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

from addon.proxy.recorder import Recorder
from addon.run.workers import worker_addon as module
from addon.run.workers.listeners import ConnectionCounts
from addon.run.workers.worker_addon import WorkerAddon
from addon.run.workers.worker_messages import WorkerJob


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerAddon]:
    job = WorkerJob(number=1, words=(), trusted="", listeners=(), folder=str(tmp_path), index=0)
    ConnectionCounts(tmp_path, processes_max=3)
    with socket.socket() as control:
        yield WorkerAddon(job, control, Recorder())


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


def is_busy(worker: WorkerAddon, handler: Any) -> bool:
    return worker._is_busy(handler)


def test_a_connection_is_busy_while_an_exchange_is_under_way(worker: WorkerAddon):
    flow = tflow.tflow(resp=True)
    handler = Handler(flow)
    assert not is_busy(worker, handler)
    worker.requestheaders(flow)
    assert is_busy(worker, handler)
    worker.response(flow)
    assert not is_busy(worker, handler)
    assert is_busy(worker, Handler(flow, blocker=1)), "a hook waits, as for a commit"


def test_streams_of_one_connection_and_websockets_count_each(worker: WorkerAddon):
    one, two = tflow.tflow(), tflow.tflow()
    two.client_conn = one.client_conn
    handler = Handler(one)
    worker.requestheaders(one)
    worker.requestheaders(two)
    worker.error(one)
    assert is_busy(worker, handler)
    worker.response(two)
    worker.websocket_start(two)
    assert is_busy(worker, handler)
    worker.websocket_end(two)
    assert not is_busy(worker, handler)
    worker.error(two)
    assert not is_busy(worker, handler), "an end too many changes nothing"


def test_a_tunnel_is_busy_until_a_request_is_seen_in_it(worker: WorkerAddon):
    flow = tflow.tflow()
    handler = Handler(flow)
    worker.http_connect(flow)
    assert is_busy(worker, handler)
    worker.requestheaders(flow)
    worker.response(flow)
    assert not is_busy(worker, handler)
    worker.http_connect(flow)
    worker.client_disconnected(flow.client_conn)
    assert not is_busy(worker, handler)


def test_only_a_retiring_worker_tells_a_client_that_its_connection_ends(worker: WorkerAddon):
    flow = tflow.tflow(resp=True)
    assert flow.response is not None
    worker.responseheaders(flow)
    assert "connection" not in flow.response.headers
    worker._retiring = True
    worker.responseheaders(flow)
    assert flow.response.headers["connection"] == "close"
    for changes in ({"status_code": 101}, {}):
        other = tflow.tflow(resp=True)
        assert other.response is not None
        other.response.status_code = changes.get("status_code", 200)
        other.request.http_version = "HTTP/1.1" if changes else "HTTP/2.0"
        worker.responseheaders(other)
        assert "connection" not in other.response.headers


def test_connections_count_while_it_accepts(worker: WorkerAddon, tmp_path: Path):
    counts = ConnectionCounts(tmp_path)
    counts.write(1, 1)
    worker.count(1)
    assert counts.is_least(1), "not counted yet"
    worker._accepts = True
    worker.count(-1)
    assert not counts.is_least(1)
    worker.done()
    assert counts.is_least(1)


async def test_a_retiring_worker_closes_silent_connections_and_stops_with_the_last(
    worker: WorkerAddon, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "IDLE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    server = Proxyserver()
    busy, silent = Handler(tflow.tflow()), Handler(tflow.tflow(), silent_seconds=60)
    server.connections = {"busy": busy, "silent": silent}  # type: ignore[dict-item]
    busy_flow = tflow.tflow()
    busy_flow.client_conn = busy.client
    worker.requestheaders(busy_flow)
    with taddons.context(server):
        retiring = asyncio.create_task(worker._retire())
        async with asyncio.timeout(10):
            while not silent.cancelled:
                await asyncio.sleep(0.01)
            del server.connections["silent"]
            worker.response(busy_flow)
            while not busy.cancelled:
                await asyncio.sleep(0.01)
            server.connections.clear()
            await retiring
        assert ctx.master.should_exit.is_set()
