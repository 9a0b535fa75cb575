"""A worker that proxies nothing: `python -m tests.addon.run.workers.fake_worker DESCRIPTOR`.

What it does stands in the file that TOKENTEE_FAKE names: `fine`, `die` (before it is ready),
`hang` (never ready), `stubborn` (does not stop when asked), or the port for metrics.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from addon.run.workers.worker_messages import RETIRE, WorkerJob, WorkerReport, line_of
from addon.telemetry.health import Health


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    lines = control.makefile("rb", buffering=0)
    job = msgspec.json.decode(lines.readline(), type=WorkerJob)
    does = Path(os.environ["TOKENTEE_FAKE"]).read_text()
    print(f"index {job.index}: {does}", file=sys.stderr, flush=True)
    if does == "die":
        sys.exit(3)
    if does == "hang":
        time.sleep(600)
    if does == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    metrics = ("127.0.0.1", int(does)) if does.isdigit() else None
    health = Health(writer_alive=True, dropped=1) if metrics else None
    control.sendall(line_of(WorkerReport(metrics=metrics, health=health, dropped_observations=2)))
    while line := lines.readline():
        if line == RETIRE:
            sys.exit(0)
    time.sleep(600 if does == "stubborn" else 0)


if __name__ == "__main__":
    main()
