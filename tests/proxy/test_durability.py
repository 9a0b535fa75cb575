"""Nothing lost, nothing twice: power cuts, a ledger that is locked, gone or full."""

import contextlib
import gzip
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.store.writing.incoming import LATE
from tests.proxy import rows
from tests.proxy.client import Ending, Http1, Received
from tests.proxy.own_time import Reader, own_ms
from tests.proxy.pair import OPENAI, Pair, exchange, new_tag, pair, post, tee_before
from tests.proxy.upstream import Answer, Framing, Request, Upstream, document
from tests.proxy.wire import asks
from tests.proxy.workers import UNASKED, check_rows, loaded, wait_for_ends

pytestmark = pytest.mark.proxy

DOCUMENT = (
    b'{"id":"chatcmpl-doc","object":"chat.completion","model":"gpt-4o","choices":[],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":64,"total_tokens":71}}'
)


def answer(request: Request) -> Answer:
    if b'"stream": true' not in request.body:
        return document(DOCUMENT)
    return Answer(pieces=OPENAI.answer(asked=asks(request.body)))


ASKED = [
    *UNASKED,
    (OPENAI.request(asked=True), b"".join(OPENAI.answer(asked=True))),
    (b'{"model":"gpt-4o","messages":[]}', DOCUMENT),
]


def kill_rounds(folder: Path, rounds: int, seed: int) -> None:
    """Kill a busy proxy again and again, on one ledger, each time after some more answers."""
    dice = random.Random(seed)
    with Upstream(answer) as upstream:
        proxy = tee_before(upstream, folder)
        ended: set[str] = set()
        sent: set[str] = set()
        for number in range(rounds):
            proxy.start()
            name = f"r{number}."
            with loaded(proxy.address(), 4, name=name, asked=ASKED) as clients:
                wait_for_ends(clients, dice.randrange(1, 10))
                proxy.kill()
            for each in clients:
                ended.update(each.ended)
                sent.update(each.sent)
        # One more start, which finds what the killed ones left open.
        proxy.start()
        proxy.stop()
    check_rows(proxy.ledger, ended=ended, sent=sent)


@pytest.mark.timeout(300)
def test_killed_in_full_run(tmp_path: Path) -> None:
    """`kill -9` after a client has seen the end of a body loses nothing (promise 2)."""
    with ThreadPoolExecutor(2) as pool:
        lanes = [pool.submit(kill_rounds, tmp_path / f"{n}", rounds=4, seed=n) for n in range(2)]
        for lane in lanes:
            lane.result()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_killed_a_hundred_times(tmp_path: Path) -> None:
    kill_rounds(tmp_path, rounds=100, seed=2)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, with_bare=False) as made:
        made.upstream.script = answer
        yield made


def test_a_locked_ledger_is_late_and_complete(running: Pair) -> None:
    """Another process holds the write lock: answers end after a bounded wait, rows come later and
    say so."""
    exchange(running.tee, OPENAI, new_tag())
    tags = [new_tag() for _ in range(3)]
    with rows.locked(running.tee.ledger), ThreadPoolExecutor(len(tags)) as pool:
        received = list(pool.map(lambda tag: exchange(running.tee, OPENAI, tag), tags))
        assert {each.body for each in received} == {b"".join(OPENAI.frames)}
    for tag in tags:
        row = running.settled_row(tag)
        assert (row["output_tokens"], row["degraded"]) == (64, LATE)


@pytest.mark.ci
def test_stopped_while_the_ledger_is_locked(running: Pair) -> None:
    """SIGTERM within a runtime's ten seconds: what waits goes into a file, and the next start books
    it."""
    exchange(running.tee, OPENAI, new_tag())
    tags = [new_tag() for _ in range(3)]
    with rows.locked(running.tee.ledger):
        with ThreadPoolExecutor(len(tags)) as pool:
            list(pool.map(lambda tag: exchange(running.tee, OPENAI, tag), tags))
        process = running.tee.process
        reader = Reader(process.pid)
        began = ended = reader.now()
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            with contextlib.suppress(OSError, AssertionError):  # it has ended since
                ended = reader.now()
            time.sleep(0.01)
        reader.close()
        assert own_ms(began, ended) < 4_000
        running.tee.wait()
    assert "the next start books them" in running.tee.log
    running.tee.start()
    for tag in tags:
        row = running.settled_row(tag)
        assert (row["output_tokens"], row["degraded"]) == (64, LATE)
    assert not [*running.tee.ledger.parent.glob("*-unbooked-*")]


def test_a_ledger_that_is_gone(running: Pair) -> None:
    """Its file is deleted under a running proxy: traffic goes on, and soon recording too.

    A deleted file takes writes like any other, so what comes before the writer's next look at it
    shares the fate of all that was in it.
    """
    exchange(running.tee, OPENAI, new_tag())
    for path in running.tee.ledger.parent.glob("ledger.db*"):
        if path.is_file():
            path.unlink()

    def is_recorded() -> bool:
        tag = new_tag()
        assert exchange(running.tee, OPENAI, tag).body == b"".join(OPENAI.frames)
        return tag in rows.by_tag(running.tee.ledger, "case")

    assert rows.eventually(is_recorded)
    tag = new_tag()
    exchange(running.tee, OPENAI, tag)
    assert running.row(tag)["output_tokens"] == 64
    running.tee.stop()
    assert "Addon error" not in running.tee.log


def test_a_ledger_that_cannot_be_written(running: Pair) -> None:
    """No room for another byte: the client is served, one line says so, nothing crashes, and the
    bill does not call itself whole."""
    exchange(running.tee, OPENAI, new_tag())
    resource.prlimit(running.tee.process.pid, resource.RLIMIT_FSIZE, (1, 1))  # of each file
    for _ in range(3):
        received = exchange(running.tee, OPENAI, new_tag())
        assert received.body == b"".join(OPENAI.frames)
    assert running.tee.process.poll() is None
    assert running.tee.wait_for_log("tokentee: cannot write the ledger ")
    running.tee.stop(signal.SIGINT)
    assert "this bill is a lower bound: 3 exchanges are not in the ledger: " in running.tee.log


def test_async_commits_do_not_hold_the_end_back(tmp_path: Path) -> None:
    """With `ledger_commit=async` a locked ledger delays nobody."""
    with pair(tmp_path, with_bare=False, options={"ledger_commit": "async"}) as running:
        running.upstream.script = answer
        exchange(running.tee, OPENAI, new_tag())
        tag = new_tag()
        with rows.locked(running.tee.ledger):
            received = exchange(running.tee, OPENAI, tag)
            assert received.ending is Ending.TERMINATED
            assert tag not in rows.by_tag(running.tee.ledger, "case")
        assert running.settled_row(tag)["output_tokens"] == 64


def test_stopped_while_answers_pass(tmp_path: Path) -> None:
    """SIGTERM under load: every end that was seen is there, whatever the stop cut short."""
    with Upstream(answer) as upstream:
        proxy = tee_before(upstream, tmp_path).start()
        with loaded(proxy.address(), 4, asked=ASKED) as clients:
            wait_for_ends(clients, 8)
            assert proxy.stop() == 0
    ended, sent = (
        {tag for each in clients for tag in getattr(each, what)} for what in ("ended", "sent")
    )
    check_rows(proxy.ledger, ended=ended, sent=sent)
    assert rows.open_count(proxy.ledger) == 0


LARGE_COUNT = 6
LARGE = gzip.compress(
    b'{"id":"chatcmpl-large","object":"chat.completion","model":"gpt-4o","choices":['
    + b",".join(
        b'{"index":%d,"message":{"content":"%s"}}'
        % (n, random.Random(n).randbytes(1_000).hex().encode() * 4)
        for n in range(2_500)
    )
    + b'],"usage":{"prompt_tokens":7,"completion_tokens":64,"total_tokens":71}}'
)
"""20 MB, which are read in turns of the event loop."""


def test_stopped_while_large_answers_are_read(tmp_path: Path) -> None:
    """Their bodies have come to their last byte, which is held while they are read in turns: none is
    lost, within the bound."""
    with Upstream(answer) as upstream, ThreadPoolExecutor(LARGE_COUNT) as pool:
        gate = upstream.gate()
        upstream.script = lambda _: Answer(
            pieces=(LARGE[:20], LARGE[20:-1], LARGE[-1:]),
            headers=(("content-encoding", "gzip"),),
            content_type="application/json",
            framing=Framing.LENGTH,
            gate=gate,
        )
        proxy = tee_before(upstream, tmp_path).start()
        begun, nearly_over = threading.Semaphore(0), threading.Semaphore(0)

        def ask(number: int) -> Received:
            with Http1(proxy.address()) as client:
                body = b'{"model":"gpt-4o","messages":[]}'
                post(client, OPENAI, f"l{number}", body=body)
                received = client.head()
                client.more(received)
                begun.release()
                while sum(map(len, received.pieces)) < len(LARGE) - 1 and client.more(received):
                    pass
                nearly_over.release()
                return client.rest(received)

        asked = [pool.submit(ask, number) for number in range(LARGE_COUNT)]
        assert rows.eventually(lambda: len(upstream.requests) == LARGE_COUNT)
        gate.release(LARGE_COUNT)
        assert all(begun.acquire(timeout=rows.WAIT_SECONDS_MAX) for _ in asked)
        gate.release(LARGE_COUNT)
        assert all(nearly_over.acquire(timeout=rows.WAIT_SECONDS_MAX) for _ in asked)
        gate.release(LARGE_COUNT)
        assert rows.eventually(lambda: upstream.sent_count == LARGE_COUNT)
        os.kill(proxy.process.pid, signal.SIGTERM)
        received = [each.result() for each in asked]
        assert proxy.wait() == 0
    assert {(each.body, each.ending) for each in received} == {(LARGE, Ending.TERMINATED)}
    found = rows.exchanges(proxy.ledger)
    assert [(row["outcome"], row["output_tokens"]) for row in found] == [
        ("complete", 64)
    ] * LARGE_COUNT


def test_two_proxies_share_one_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "shared.db"
    options = {"ledger_url": f"sqlite:///{ledger}"}
    with (
        pair(tmp_path / "one", with_bare=False, options=options) as one,
        pair(tmp_path / "two", with_bare=False, options=options) as two,
    ):
        one.upstream.script = two.upstream.script = answer
        tags = [(made, f"p{n}.{each}") for each in range(20) for n, made in enumerate((one, two))]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda asked: exchange(asked[0].tee, OPENAI, asked[1]), tags))
    found = rows.by_tag(ledger, "case")
    assert sorted(found) == sorted(f"p{n}.{each}" for n in range(2) for each in range(20))
    assert {row["output_tokens"] for (row,) in found.values()} == {64}
