"""Captures of live flows: what a row says of its capture."""

import gzip
import json
from pathlib import Path

from tests.addon.proxy.recording import DOCUMENT, answered, exchanges, flow_of, recording


async def test_a_row_names_its_capture(ledger: Path, tmp_path: Path):
    async with recording(ledger, tee_capture=str(tmp_path / "captures")) as (recorder, _):
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    ((capture, degraded),) = exchanges(ledger, "capture, degraded")
    assert degraded is None
    file, _, name = capture.partition("#")
    (line,) = gzip.decompress(Path(file).read_bytes()).splitlines()
    assert json.loads(line)["id"] == name


async def test_a_row_says_that_captures_cannot_be_written(ledger: Path, tmp_path: Path):
    async with recording(ledger, tee_capture=str(tmp_path / "captures")) as (recorder, _):
        running = recorder._running
        assert running is not None
        assert running.captures is not None
        running.captures.failure = "captures cannot be written: No space left on device"
        flow = flow_of()
        recorder.request(flow)
        answered(flow, content=DOCUMENT, content_type="application/json")
        await recorder.response(flow)
    ((degraded,),) = exchanges(ledger, "degraded")
    assert degraded == "captures cannot be written: No space left on device"
