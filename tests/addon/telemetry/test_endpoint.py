"""The three paths, and what a bad client can do to them."""

import contextlib
import http.client
import json
import socket

import pytest

from addon.telemetry import endpoint as module
from addon.telemetry.endpoint import Endpoint
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics


class State:
    health = Health(writer_alive=True)
    address: tuple[str, int]


def endpoint(state: State) -> Endpoint:
    metrics = Metrics(lambda: state.health).exposition
    return Endpoint("127.0.0.1", 0, health=lambda: state.health, metrics=metrics)


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
    connection = http.client.HTTPConnection(host, port, timeout=10)
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
    assert ask(served, "/metrics", "POST")[0] == 501


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


def test_a_connection_has_its_time_however_often_it_sends(served, monkeypatch):
    monkeypatch.setattr(module, "CONNECTION_SECONDS_MAX", 0.3)
    slow = socket.create_connection(served.address)
    slow.settimeout(0.05)
    sent = 0
    with contextlib.suppress(OSError):
        while sent < 400:
            slow.sendall(b"X")
            sent += 1
            with contextlib.suppress(TimeoutError):
                if slow.recv(1) == b"":
                    break
    assert sent < 400  # cut by the endpoint, of whose bytes it read none to the end
    slow.close()


def test_stopping_what_never_started():
    endpoint(State()).stop()
