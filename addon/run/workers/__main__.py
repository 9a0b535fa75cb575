"""Wiring. A worker process: `python -m ...run.workers`, with its job on stdin."""

import signal
import sys

from addon.run.imports import uncollected_imports


def main() -> int:
    """Read the job, and do it until the supervisor or a signal ends it; returns the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the worker can retire
    with open(0, "rb", buffering=0, closefd=False) as supervisor:
        job = supervisor.readline()
    with uncollected_imports():
        from addon.run.workers.worker import run_worker
    return run_worker(job)


if __name__ == "__main__":
    sys.exit(main())
