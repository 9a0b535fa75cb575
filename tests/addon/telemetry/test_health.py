"""When a process is not ready."""

import pytest

from addon.telemetry.health import DISK_FREE_BYTES_MIN, SPOOL_AGE_SECONDS_MAX, Health, problems


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
        ({"oldest_waiting_seconds": 7200.0}, "exchanges wait 7200 s for the shared ledger"),
        ({"stopped_threads": ("keeper: OSError()",)}, "a thread does not work: keeper: OSError()"),
        ({"disk_free_bytes": 1_000}, "the disk of the ledger has 1,000 bytes left"),
    ],
)
def test_what_makes_it_not_ready(changed, says):
    assert problems(Health(**{"writer_alive": True, **changed})) == [says]
