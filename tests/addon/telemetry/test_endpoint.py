"""The three paths, and what a bad client can do to them."""

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


@pytest.fixture
def served():
    state = State()
    made = Endpoint(
        "127.0.0.1", 0, health=lambda: state.health, metrics=Metrics(lambda: state.health)
    )
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
def test_connections_that_say_nothing_do_not_keep_others_out_for_long(served, monkeypatch):
    monkeypatch.setattr(module._Handler, "timeout", 0.2)
    silent = [socket.create_connection(served.address) for _ in range(module.CONNECTIONS_MAX + 4)]
    for one in silent:
        one.settimeout(10)
        assert one.recv(1) == b""  # closed: refused at once, or after its time
    assert ask(served, "/healthz")[0] == 200
    for one in silent:
        one.close()


def test_an_address_that_is_taken(served):
    with pytest.raises(OSError, match="Address already in use"):
        Endpoint(
            *served.address, health=lambda: State.health, metrics=Metrics(lambda: State.health)
        )


def test_stopping_what_never_started():
    Endpoint(
        "127.0.0.1", 0, health=lambda: State.health, metrics=Metrics(lambda: State.health)
    ).stop()
