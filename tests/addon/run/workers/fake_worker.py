"""A worker that proxies nothing: `python -m tests.addon.run.workers.fake_worker`.

What it does stands in the file that TOKENTEE_FAKE names: `fine`, `die` (before it is ready),
`hang` (never ready), `stubborn` (does not stop when asked), `json` (logs as JSON), `retire`
(retires for long), or the port for metrics.
"""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from addon.proxy.health import Health
from addon.run.workers.job import WorkerJob, WorkerReport, write_report


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerJob)
    does = Path(os.environ["TOKENTEE_FAKE"]).read_text()
    print(f"index {job.index} of {job.words[-1]}: {does}", file=sys.stderr, flush=True)
    if does == "die":
        sys.exit(3)
    if does == "hang":
        time.sleep(600)
    for number in (signal.SIGTERM, signal.SIGHUP):
        stays = does == "stubborn" or (does == "retire" and number == signal.SIGHUP)
        signal.signal(number, signal.SIG_IGN if stays else lambda *_: sys.exit(0))
    metrics = ("127.0.0.1", int(does)) if does.isdigit() else None
    health = Health(writer_alive=True, dropped=1) if metrics else None
    report = WorkerReport(
        monotonic=time.monotonic(),
        metrics=metrics,
        log_as_json=does == "json",
        health=health,
        dropped_observations=2,
    )
    write_report(Path(job.folder), job.index, report)
    sys.stdin.read()


if __name__ == "__main__":
    main()
