"""When a process is not ready."""

from dataclasses import replace

import pytest

from addon.telemetry.health import (
    DISK_FREE_BYTES_MIN,
    SPOOL_AGE_SECONDS_MAX,
    Health,
    merged,
    problems,
)


def test_a_process_that_records_is_ready():
    assert problems(Health(writer_alive=True)) == []
    fine = Health(
        writer_alive=True,
        shipper_alive=True,
        oldest_waiting_seconds=SPOOL_AGE_SECONDS_MAX,
        disk_free_bytes=DISK_FREE_BYTES_MIN,
    )
    assert problems(fine) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"writer_alive": False}, "the writer thread has ended: nothing is recorded"),
        ({"writer_trouble": "disk full"}, "the ledger cannot be written: disk full"),
        ({"shipper_alive": False}, "the shipper thread has ended: exchanges stay in the spool"),
        ({"oldest_waiting_seconds": 7200.0}, "exchanges wait 2 h 00 min for the shared ledger"),
        ({"stopped_threads": ("keeper: OSError()",)}, "a thread does not work: keeper: OSError()"),
        ({"disk_free_bytes": 1_000}, "the disk of the ledger has 1,000 bytes left"),
    ],
)
def test_what_makes_it_not_ready(changed, says):
    assert problems(Health(**{"writer_alive": True, **changed})) == [says]


def test_several_workers_are_one():
    one = Health(
        writer_alive=True, queued_rows=1, dropped=2, open_exchanges=3, ledger_bytes=10,
        disk_free_bytes=2**40, shipper_alive=True, waiting_to_ship=4, oldest_waiting_seconds=1.0,
    )  # fmt: skip
    two = replace(one, ledger_bytes=12, disk_free_bytes=2**39, waiting_to_ship=5)
    whole = merged({"worker 1": one, "worker 2": two}, missing=[], dropped_before=7, restarts=1)
    assert problems(whole) == []
    assert (whole.queued_rows, whole.dropped, whole.open_exchanges) == (2, 11, 6)
    assert (whole.ledger_bytes, whole.disk_free_bytes, whole.waiting_to_ship) == (12, 2**39, 5)
    assert (whole.workers, whole.worker_restarts, whole.shipper_alive) == (2, 1, True)


def test_one_bad_worker_makes_all_not_ready():
    bad = Health(writer_alive=True, writer_trouble="disk full", shipping_trouble="down")
    whole = merged(
        {"worker 1": Health(writer_alive=True), "worker 2": bad},
        missing=["worker 3 does not run"],
        dropped_before=0,
        restarts=0,
    )
    assert problems(whole) == [
        "the ledger cannot be written: worker 2: disk full",
        "worker 3 does not run",
    ]
    assert whole.shipping_trouble == "down"
    nobody = merged({}, missing=[], dropped_before=0, restarts=0)
    assert problems(nobody) == ["the writer thread has ended: nothing is recorded"]
