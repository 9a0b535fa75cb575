"""kill -9 under load: what was said to be on disk is on disk, once, and the rest is visible."""

import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.ledger.written import COST, row, rows, writing

pytestmark = pytest.mark.process

LOAD = """
import sys, threading, os
from dataclasses import replace
from tests.ledger.written import opened, settled, reading, priced
from ledger import recording

url, run = sys.argv[1:]
out = os.fdopen(1, "wb", buffering=0)
room = threading.Semaphore(64)

def on_commit(receipts):
    # One write, so that the reader sees whole lines.
    out.write(b"".join(b"%s\\n" % r.exchange_id.encode() for r in receipts if r.committed))
    for _ in receipts:
        room.release()

ledger = recording.open_ledger(url, node=f"host/{os.getpid()}/{run}", price=priced, on_commit=on_commit,
                      log=lambda *_: None)
number = 0
while True:
    number += 1
    name = f"{run}-{number}"
    ledger.open(opened(name))
    if number % 10 == 0:
        continue  # this one stays under way
    room.acquire()
    exchange = settled(name, response_id=name, content_digest=name)
    ledger.settle(exchange, reading(exchange))
"""


def kill_once(url, run: int, generator: random.Random) -> set[str]:
    """Load a ledger, kill the process at a moment that nobody chose; what it said was on disk."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, url, str(run)], stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    said = b""
    try:
        while b"\n" not in said:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            assert ready, "the load did not begin"
            said += os.read(process.stdout.fileno(), 1 << 16)
        end = time.monotonic() + generator.uniform(0, 0.25)
        while (left := end - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left)[0]:
                said += os.read(process.stdout.fileno(), 1 << 16)
    finally:
        process.send_signal(signal.SIGKILL)
    said += process.stdout.read()
    process.wait()
    process.stdout.close()
    return {line.decode() for line in said.split(b"\n")[:-1]}


def rounds(url, count: int, seed: int) -> None:
    generator = random.Random(seed)
    promised: set[str] = set()
    for run in range(count):
        promised |= kill_once(url, run, generator)
        with writing(url, node=f"host/check/{run}"):
            pass
        kept = {name for (name,) in rows(url, "SELECT id FROM exchanges WHERE state='settled'")}
        assert promised <= kept
        found = row(
            url,
            "SELECT COUNT(*), COUNT(DISTINCT id), SUM(input_tokens), SUM(cost_picousd) "
            "FROM requests WHERE state = 'settled'",
        )
        assert found == (len(kept), len(kept), 100 * len(kept), COST * len(kept))
        assert row(url, "SELECT COUNT(*) FROM exchanges WHERE state = 'open'") == (0,)
    assert row(url, "SELECT COUNT(*) > 0 FROM exchanges WHERE state = 'lost'") == (1,)
    assert row(url, "PRAGMA integrity_check") == ("ok",)


def test_kill_9_loses_nothing_that_was_promised(new_sqlite):
    rounds(new_sqlite(), 6, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kill_9_a_hundred_times(new_sqlite):
    rounds(new_sqlite(), 100, seed=2)
