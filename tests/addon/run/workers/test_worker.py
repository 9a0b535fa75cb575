"""What a worker writes, closes and drains; the whole is in tests/proxy/test_workers.py."""

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow

from addon.proxy.recorder import Recorder
from addon.run.workers import worker as module
from addon.run.workers.job import WorkerJob
from addon.run.workers.worker import NumberedLines, SharedPorts, WorkerAddon
from tests.proxy.mitmdump import free_port


@pytest.fixture
def worker(tmp_path: Path) -> WorkerAddon:
    job = WorkerJob(number=1, run_id="r", words=(), trusted="", folder=str(tmp_path), index=0)
    return WorkerAddon(job, Recorder())


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


def test_a_connection_is_busy_while_one_of_its_exchanges_is_under_way(worker: WorkerAddon):
    one, two = tflow.tflow(), tflow.twebsocketflow()
    two.client_conn = one.client_conn
    handler = Handler(one)
    assert not is_busy(worker, handler)
    assert is_busy(worker, Handler(one, blocker=1)), "a hook waits, as for a commit"
    worker.requestheaders(one)
    worker.requestheaders(two)
    worker.response(two)
    worker.error(one)
    assert is_busy(worker, handler), "the WebSocket is open"
    worker.websocket_end(two)
    worker.error(two)
    assert not is_busy(worker, handler)


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
    def told(status: int = 200, version: str = "HTTP/1.1") -> bool:
        flow = tflow.tflow(resp=True)
        assert flow.response is not None
        flow.response.status_code, flow.request.http_version = status, version
        worker.responseheaders(flow)
        return flow.response.headers.get("connection") == "close"

    assert not told()
    worker._retiring = True
    assert told()
    assert not told(status=101)
    assert not told(version="HTTP/2.0")


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
        retiring = asyncio.create_task(worker._close_idle())
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


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


async def ask(port: int) -> bytes:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        answered = await reader.read()
        writer.close()
        return answered


async def test_nothing_listens_before_it_is_open_and_the_queue_is_emptied_at_the_end():
    ports = SharedPorts(asyncio.get_running_loop())
    port = free_port()
    await asyncio.start_server(echo, "127.0.0.1", port)
    await asyncio.start_server(echo, "127.0.0.1", port)  # as another process would
    with pytest.raises(ConnectionRefusedError):
        await ask(port)
    await ports.open()
    assert await ask(port) == b"hello\n"
    # Connections that wait in the queues, since the loop did not turn.
    clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(20)]
    ports.close()
    for client in clients:
        client.sendall(b"waited\n")
    for client in clients:
        with client:
            assert await asyncio.to_thread(client.recv, 99) == b"waited\n"
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


def test_lines_are_whole_and_numbered(tmp_path: Path):
    with (tmp_path / "log").open("wb") as out:
        lines = NumberedLines(3, out.fileno())
        for text in ("first ha", "lf\nsecond\n", "\n", '{"time": "t"}\n', "x" * 70_000):
            print(text, file=lines, end="")
    *found, long = (tmp_path / "log").read_text().splitlines()
    assert found[:2] == ["worker 3: first half", "worker 3: second"]
    assert json.loads(found[2]) == {"worker": 3, "time": "t"}
    assert long == "worker 3: " + "x" * 70_000


def test_a_closed_log_hurts_nobody():
    reading, writing = os.pipe()
    os.close(reading)
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    NumberedLines(1, writing).write("x\n")
    signal.signal(signal.SIGPIPE, before)
    os.close(writing)
