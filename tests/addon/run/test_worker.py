"""What a worker writes, closes and drains; the whole is in tests/proxy/test_workers.py."""

import asyncio
import io
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import msgspec
import pytest
from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow

from addon.proxy.recorder import Recorder
from addon.run import worker as module
from addon.run.ports import Ports
from addon.run.worker import WorkerAddon, WorkerJob, WorkerReport


@pytest.fixture
def worker() -> WorkerAddon:
    job = WorkerJob(run_id="r", words=(), trusted="", folder="", ports=(), is_first=False)
    return WorkerAddon(job, Recorder(), io.BytesIO(), Ports())


def test_only_a_retiring_worker_tells_a_client_that_its_connection_ends(worker: WorkerAddon):
    def told(status: int = 200, version: str = "HTTP/1.1") -> bool:
        flow = tflow.tflow(resp=True)
        assert flow.response is not None
        flow.response.status_code, flow.request.http_version = status, version
        worker.responseheaders(flow)
        return flow.response.headers.get("connection") == "close"

    assert not told()
    worker._is_retiring = True
    assert told()
    assert not told(status=101)
    assert not told(version="HTTP/2.0")


async def test_a_retiring_worker_stops_with_the_last_connection(
    worker: WorkerAddon, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    server = Proxyserver()
    server.connections = {"one": None}  # type: ignore[dict-item]
    with taddons.context(server):
        worker._retire()
        worker._retire()  # once
        assert len(worker._tasks) == 1
        await asyncio.sleep(0.05)
        assert not ctx.master.should_exit.is_set()
        server.connections.clear()
        async with asyncio.timeout(60):
            await ctx.master.should_exit.wait()


def test_the_end_of_a_worker_is_reported_if_it_has_started(worker: WorkerAddon):
    """The bill needs the earliest request, for the clock may be set back, and what is missing."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    ledger = Mock(first_opened_at=start)
    ledger.health.return_value = Mock(unrecorded=Mock(return_value="2 exchanges"))
    worker._recorder._recording = Mock(
        ledger=ledger, watching=None, settings=Mock(of_parts={"tee_metrics": None})
    )
    worker.report_end()
    assert sent(worker) == []
    worker._tasks.add(Mock())
    worker._report()
    ledger.first_opened_at = start - timedelta(hours=1)
    worker.report_end()
    found = [(each.first_opened_at, each.unrecorded) for each in sent(worker)]
    assert found == [(start, ""), (start - timedelta(hours=1), "2 exchanges")]


def sent(worker: WorkerAddon) -> list[WorkerReport]:
    assert isinstance(worker._reports, io.BytesIO)
    lines = worker._reports.getvalue().splitlines()
    return [msgspec.json.decode(line, type=WorkerReport) for line in lines]
