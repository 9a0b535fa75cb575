"""`tokentee run --workers`: one port, one ledger, one log; workers that die, and are replaced."""

import contextlib
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.proxy import rows
from tests.proxy.client import Ending, Http1
from tests.proxy.mitmdump import START_SECONDS_MAX, free_port
from tests.proxy.pair import OPENAI, headers_for
from tests.proxy.test_confirming import DONE, USAGE, as_json
from tests.proxy.test_durability import answer
from tests.proxy.upstream import Answer, Upstream
from tests.proxy.workers import Client, Workers, check_rows, loaded, wait_for_ends

pytestmark = pytest.mark.proxy


CLIENTS = 4
PIECES = OPENAI.answer(asked=True)
RESULT = as_json(DONE | {"usage": USAGE})


def settings(upstream: Upstream, **more: str) -> dict[str, str]:
    return {"tee_hosts": f"127.0.0.1:{upstream.port}=aivene", "termlog_verbosity": "warn", **more}


@contextlib.contextmanager
def under_load(folder: Path, port: int) -> Iterator[tuple[Upstream, Workers, list[Client]]]:
    """Two workers with metrics at a port, what they record, and clients at work."""
    with (
        Upstream(answer) as upstream,
        Workers(folder, upstream.url, options=settings(upstream, tee_metrics=str(port))) as workers,
        loaded(workers.address(), CLIENTS) as clients,
    ):
        yield upstream, workers, clients


def check(ledger: Path, clients: list[Client]) -> None:
    ended = {tag for each in clients for tag in each.ended}
    sent = {tag for each in clients for tag in each.sent}
    # "long" is the request of `replace_during_an_answer`, "" those of `fetch_on_other_connections`.
    check_rows(ledger, ended=ended, sent=sent | {"long"}, without_tag=8)


def test_workers_start_and_are_replaced_before_an_upstream_of_https(tmp_path: Path) -> None:
    """A single proxy listens for HTTP/3 at its UDP port, too."""
    with Workers(tmp_path, "https://127.0.0.1:9") as workers:
        assert workers.has_said("2 workers listening at")
        os.kill(workers.process.pid, signal.SIGHUP)
        assert workers.has_said("2 workers were replaced")


@pytest.mark.timeout(400)
def test_killed_and_replaced_under_load(tmp_path: Path) -> None:
    """One worker is killed, then all are replaced: no client is refused, no row is lost, and an
    answer that is under way is finished by the worker that began it."""
    port = free_port()
    with under_load(tmp_path, port) as (upstream, workers, clients):
        wait_for_ends(clients, 3)
        fetch_on_other_connections(workers, upstream)
        first, second = workers.pids()
        os.kill(first, signal.SIGKILL)
        assert workers.has_said("ended with SIGKILL and is started again")
        wait_for_ends(clients, 3)
        broken_by_kill = sum(len(each.broken) for each in clients)
        wait_for_workers(workers, port)
        assert first not in workers.pids()

        replace_during_an_answer(workers, upstream)
        assert workers.has_said("has finished", count=2)
        assert not {first, second} & set(workers.pids())
        wait_for_ends(clients, 3)

        for each in clients:
            each.stop()
        assert sum(each.refused for each in clients) == 0, "a connection was refused"
        assert sum(len(each.broken) for each in clients) == broken_by_kill, (
            "a request broke while the workers were replaced"
        )
        assert is_counted(port, sum(len(each.ended) for each in clients), workers)
        assert workers.stop() == 0, workers.log
    check(workers.ledger, clients)
    assert rows.open_count(workers.ledger) == 0
    before_the_bill = workers.log.partition("This run by model")[0]
    lines = [line for line in before_the_bill.splitlines() if line]
    assert all(line.startswith(("tokentee: ", "worker ")) for line in lines), workers.log


def test_connections_wait_while_no_worker_lives(tmp_path: Path) -> None:
    """The port is the supervisor's: what no worker has accepted is lost with none of them."""
    port = free_port()
    with under_load(tmp_path, port) as (_, workers, clients):
        for deaths in (2, 4):
            wait_for_ends(clients, 3)
            wait_for_workers(workers, port)
            # Both at once: a client that loses one does not go to the other.
            for how in (signal.SIGSTOP, signal.SIGKILL):
                for pid in workers.pids():
                    os.kill(pid, how)
            assert workers.has_said("ended with SIGKILL and is started again", deaths)
        wait_for_ends(clients, 3)
        for each in clients:
            each.stop()
            assert each.refused == 0
            assert len(each.broken) <= 2  # what a killed worker had accepted
        assert workers.stop() == 0, workers.log
    check(workers.ledger, clients)


def fetch_on_other_connections(workers: Workers, upstream: Upstream) -> None:
    """A response, and the same one fetched, by whichever worker, is booked once."""
    upstream.script = lambda request: RESULT if "resp" in request.target else answer(request)
    body = json.dumps({"model": "m", "input": "Hi"}).encode()
    asked = [("POST", "/v1/responses", body), *[("GET", "/v1/responses/resp_1", b"")] * 7]
    with contextlib.ExitStack() as open_ones:
        # Open at the same time, so that they are spread over the workers.
        connections = [open_ones.enter_context(Http1(workers.address())) for _ in asked]
        for client, (method, path, sent) in zip(connections, asked, strict=True):
            client.send(method, path, [("content-type", "application/json")], sent)
            assert client.receive().body == RESULT.pieces[0]
    found = [row for row in rows.exchanges(workers.ledger) if row["response_id"] == "resp_1"]
    assert [row["output_tokens"] for row in found if row["duplicate_of"] is None] == [12]


def replace_during_an_answer(workers: Workers, upstream: Upstream) -> None:
    """SIGHUP while an answer is under way: the worker that began it finishes it."""
    gate = upstream.gate()
    upstream.script = lambda request: (
        Answer(pieces=PIECES, gate=gate) if "long" in request.target else answer(request)
    )
    with Http1(workers.address()) as client:
        client.send(
            "POST", f"{OPENAI.target}?long", headers_for(OPENAI, "long"), OPENAI.request(asked=True)
        )
        assert rows.eventually(lambda: "long" in rows.by_tag(workers.ledger, "case"))
        workers.process.send_signal(signal.SIGHUP)
        for _ in PIECES[:-1]:  # one now and then: an upstream that waits for too long gives up
            gate.release()
            if rows.eventually(lambda: "2 workers were replaced" in workers.log, 30):
                break
        assert "2 workers were replaced" in workers.log
        (row,) = rows.by_tag(workers.ledger, "case")["long"]
        assert row["state"] == "open", "a new worker took it for lost"
        gate.release(len(PIECES))
        received = client.receive()
    assert (received.ending, received.body) == (Ending.TERMINATED, b"".join(PIECES))
    (row,) = rows.by_tag(workers.ledger, "case")["long"]
    assert (row["state"], row["output_tokens"]) == ("settled", 64)


def wait_for_workers(workers: Workers, port: int) -> None:
    """Until both accept: one that dies before that is told of in other words."""
    assert rows.eventually(
        lambda: is_ready(port) and len(workers.pids()) == 2, START_SECONDS_MAX
    ), workers.log


def is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answered:
            return bool(json.load(answered)["ready"])
    except OSError:
        return False


def is_counted(port: int, requests: int, workers: Workers) -> bool:
    """Whether `/metrics` comes to count the requests of all workers, the dead one's too.

    A killed worker may have committed what it had not counted: one for each client.
    """

    def counted() -> float:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answered:
                lines = answered.read().decode().splitlines()
        except OSError:  # the worker that answered is being replaced
            return 0.0
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("tokentee_requests_total{") and 'outcome="complete"' in line
        )

    return rows.eventually(lambda: counted() >= requests - CLIENTS, START_SECONDS_MAX)


def test_a_wrong_option_ends_the_start_with_its_line(tmp_path: Path) -> None:
    with Upstream(answer) as upstream:
        workers = Workers(tmp_path, upstream.url, options=settings(upstream, tee_inject="maybe"))
        workers.launch()
        assert workers.wait() == 1
    assert workers.log.count("tee_inject: 'maybe' is not one of") == 1, workers.log


def test_workers_that_cannot_start_again_end_it(tmp_path: Path) -> None:
    """The settings were good at the start, and are bad when a worker dies."""
    prices = tmp_path / "prices.toml"
    prices.write_text("")
    with Upstream(answer) as upstream:
        workers = Workers(
            tmp_path, upstream.url, options=settings(upstream, tee_prices=str(prices))
        ).start()
        prices.unlink()
        workers.process.send_signal(signal.SIGHUP)
        assert workers.has_said("does not start: it ended before it was ready (exit code 1)")
        assert len(workers.pids()) == 2, "the old ones go on"
        os.kill(workers.pids()[0], signal.SIGKILL)
        assert workers.process.wait(200) == 1
        workers.wait()  # until the log has all of its lines
    assert "(exit code 1); all workers are stopped" in workers.log


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Forty kills of three workers under load, a replacement after every tenth."""
    dice = random.Random(11)
    pause = threading.Event()
    with (
        Upstream(answer) as upstream,
        Workers(tmp_path, upstream.url, count=3, options=settings(upstream)) as workers,
        loaded(workers.address(), 8) as clients,
    ):
        for number in range(1, 41):
            pause.wait(dice.uniform(0.5, 8.0))
            if pids := workers.pids():  # while nobody accepts, connections wait
                os.kill(dice.choice(pids), signal.SIGKILL)
            if number % 10 == 0:
                workers.process.send_signal(signal.SIGHUP)
        assert rows.eventually(lambda: len(workers.pids()) >= 3, START_SECONDS_MAX)
        wait_for_ends(clients, 3)
        for each in clients:
            each.stop()
        assert sum(each.refused for each in clients) == 0
        assert workers.stop() == 0, workers.log
    # One more start, which finds what the killed ones left open.
    with Workers(tmp_path, "http://127.0.0.1:9", count=1):
        pass
    check(workers.ledger, clients)
