"""Wiring. A worker process: `python -m ...run.workers DESCRIPTOR`.

The supervisor starts it; the descriptor is its end of the socket pair between both.
"""

import signal
import socket
import sys

from addon.run.imports import uncollected_imports


def main() -> int:
    """Read the job, and do it until the supervisor or a signal ends it; returns the exit code."""
    # For the supervisor alone, whose group this process left.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    with control.makefile("rb", buffering=0) as lines:
        import msgspec

        from addon.run.workers.worker_messages import LINE_BYTES_MAX, WorkerJob

        job = msgspec.json.decode(lines.readline(LINE_BYTES_MAX), type=WorkerJob)
    with uncollected_imports():
        from addon.run.workers.worker_addon import run_worker
    return run_worker(job, control)


if __name__ == "__main__":
    sys.exit(main())
