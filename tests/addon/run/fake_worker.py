"""A worker that proxies nothing: `python -m tests.addon.run.fake_worker`.

What it does stands in the file that TOKENTEE_FAKE names: `fine`, `die` (before it is ready),
`hang` (never ready), `stubborn` (does not stop when asked), `json` (logs as JSON), `retire`
(retires for long), or the port for metrics.
"""

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from addon.proxy.health import Health
from addon.run.worker import WorkerJob, WorkerReport
from ledger.text.first_minute import PassedTraffic


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerJob)
    does = Path(os.environ["TOKENTEE_FAKE"]).read_text()
    print(f"process {os.getpid()} of {job.words[-1]}: {does}", file=sys.stderr, flush=True)
    if does == "die":
        sys.exit(3)
    if does == "hang":
        time.sleep(600)
    for number in (signal.SIGTERM, signal.SIGHUP):
        stays = does == "stubborn" or (does == "retire" and number == signal.SIGHUP)
        signal.signal(number, signal.SIG_IGN if stays else lambda *_: sys.exit(0))
    metrics = ("127.0.0.1", int(does)) if does.isdigit() else None
    report = WorkerReport(
        of_parts={"tee_metrics": metrics, "tee_log_format": does == "json"},
        health=Health(writer_alive=True, dropped=1) if metrics else None,
        dropped_observations=2,
        seen=PassedTraffic(connections=1),
        first_opened_at=datetime.now(UTC),
    )
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
