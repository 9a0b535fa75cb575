"""What operators ask and read: the three paths, when a process is not ready, and log lines."""

import contextlib
import http.client
import io
import json
import logging
import socket
import sys
from dataclasses import replace

import pytest

from addon.parts.telemetry import endpoint as module
from addon.parts.telemetry.endpoint import Endpoint
from addon.parts.telemetry.json_log import LOG_MESSAGE_LENGTH_MAX, JsonFormatter
from addon.parts.telemetry.metrics import Metrics
from addon.proxy.health import (
    DISK_FREE_BYTES_MIN,
    SPOOL_AGE_SECONDS_MAX,
    Health,
    merged,
    problems,
)
from tests.named import for_each


class State:
    health = Health(writer_alive=True)
    address: tuple[str, int]


def endpoint(state: State) -> Endpoint:
    registry = Metrics(lambda: state.health).registry
    return Endpoint("127.0.0.1", 0, health=lambda: state.health, registry=registry)


@pytest.fixture
def served():
    state = State()
    made = endpoint(state)
    made.start()
    state.address = made.address
    yield state
    made.stop()


def ask(served, path, method="GET"):
    host, port = served.address
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.getheader("Content-Type")


def test_alive_and_ready(served):
    assert ask(served, "/healthz")[:2] == (200, "ok\n")
    status, body, kind = ask(served, "/readyz?verbose")
    assert (status, kind) == (200, "application/json")
    assert json.loads(body)["ready"] is True


def test_not_ready_says_why(served):
    served.health = Health(writer_alive=False)
    status, body, _ = ask(served, "/readyz")
    assert status == 503
    assert json.loads(body)["problems"] == ["the writer thread has ended: nothing is recorded"]
    assert ask(served, "/healthz")[0] == 200


def test_metrics(served):
    status, body, kind = ask(served, "/metrics")
    assert status == 200
    assert "tokentee_ready 1.0" in body
    assert kind.startswith("text/plain")


def test_anything_else(served):
    assert ask(served, "/")[0] == 404
    assert ask(served, "/metrics", "HEAD")[:2] == (200, "")
    assert ask(served, "/metrics", "POST")[0] == 405


@pytest.mark.large
def test_slow_connections_keep_nobody_away(served):
    """Each sends a byte now and then, so no read of theirs takes long."""
    slow = [socket.create_connection(served.address) for _ in range(2 * module.CONNECTIONS_MAX)]
    for round_ in range(3):
        for one in slow:
            with contextlib.suppress(OSError):
                one.sendall(b"G" if round_ == 0 else b"E")
        assert ask(served, "/healthz")[0] == 200
    for one in slow:
        one.close()


def test_a_connection_that_is_silent_is_closed(served, monkeypatch):
    monkeypatch.setattr(module._Handler, "timeout", 0.1)
    with (
        socket.create_connection(served.address, timeout=60) as silent,
        contextlib.suppress(ConnectionError),  # closed before this was sent
    ):
        silent.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        assert silent.recv(1) == b""


def test_stopping_what_never_started():
    endpoint(State()).stop()


def test_a_process_that_records_is_ready():
    assert problems(Health(writer_alive=True)) == []
    fine = Health(
        writer_alive=True,
        shipper_alive=True,
        oldest_waiting_seconds=SPOOL_AGE_SECONDS_MAX,
        disk_free_bytes=DISK_FREE_BYTES_MIN,
    )
    assert problems(fine) == []


@for_each(
    "changed, says",
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
    one = replace(one, cap_shares=(("daily", 0.25), ("nightly", 0.5)))
    two = replace(one, ledger_bytes=12, disk_free_bytes=2**39, waiting_to_ship=5)
    two = replace(two, cap_shares=(("daily", 0.75), ("nightly", 0.0)))
    whole = merged({"worker 1": one, "worker 2": two}, missing=[], dropped_before=7, restarts=1)
    assert problems(whole) == []
    assert (whole.queued_rows, whole.dropped, whole.open_exchanges) == (2, 11, 6)
    assert (whole.ledger_bytes, whole.disk_free_bytes, whole.waiting_to_ship) == (12, 2**39, 5)
    assert (whole.workers, whole.worker_restarts, whole.shipper_alive) == (2, 1, True)
    assert whole.cap_shares == (("daily", 0.75), ("nightly", 0.5))


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


def lines_of(log):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("tokentee.test")
    logger.addHandler(handler)
    log(logger)
    text = out.getvalue()
    assert text.isascii()
    return [json.loads(line) for line in text.splitlines()]


def test_one_object_a_line_whatever_stands_in_it():
    (line,) = lines_of(lambda logger: logger.warning("a\n\x1b]0;x\x07 %s \u202e", "b"))
    assert line["message"] == "a\n\x1b]0;x\x07 b \u202e"
    assert (line["level"], line["logger"]) == ("warning", "tokentee.test")
    assert line["time"].endswith("+00:00")
    assert "client" not in line


def test_long_lines_are_cut():
    (line,) = lines_of(lambda logger: logger.info("x" * 10_000))
    assert len(line["message"]) == LOG_MESSAGE_LENGTH_MAX + 1


def test_the_client_and_the_kind_of_error_are_named():
    def log(logger):
        try:
            int("sk-secret")
        except ValueError:
            logger.error("failed", exc_info=sys.exc_info(), extra={"client": ("10.0.0.1", 5)})

    (line,) = lines_of(log)
    assert (line["client"], line["error"]) == ("10.0.0.1:5", "ValueError")
    assert "sk-secret" not in json.dumps(line)
