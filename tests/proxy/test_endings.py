"""Ends that the matrix cannot bring about: nobody answers, somebody kills, the proxy stops."""

import asyncio
import contextlib
import itertools
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.client import BrokenHttpError, Http1
from tests.proxy.mitmdump import SCRIPTS, Mitmdump
from tests.proxy.pair import (
    BY_NAME,
    OPENAI,
    Pair,
    exchange,
    new_tag,
    pair,
    post,
    speak,
    tee_before,
)
from tests.proxy.upstream import Answer, End, Framing, Request, Upstream
from tests.proxy.wire import ASKED, Ask, Wire, asks
from tests.proxy.wires import EVERY_ASK

pytestmark = pytest.mark.proxy


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can take."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_nobody_there_and_nobody_trusted(tmp_path: Path) -> None:
    """Refused, and a certificate that cannot be verified: a 502 for the client, and a row."""
    with ExitStack() as running:
        port = running.enter_context(closed_port())
        tls = server_context(make_certificate(tmp_path), http2=False)
        untrusted = running.enter_context(Upstream(speak(OPENAI), tls=tls))
        proxy = running.enter_context(
            Mitmdump(tmp_path / "tee", upstreams=[f"http://127.0.0.1:{port}", untrusted.url])
        )
        ends = ("connection_refused", "tls_failed")
        codes = {}
        for (index, end), (wire, ask) in itertools.product(enumerate(ends), EVERY_ASK):
            tag = new_tag()
            codes[tag] = end
            with Http1(proxy.address(index)) as client:
                post(client, wire, tag, asked=ASKED[ask])
                assert client.receive().status == 502, (end, wire.name)
        assert rows.eventually(lambda: len(rows.exchanges(proxy.ledger)) == len(codes))
        assert rows.eventually(lambda: rows.open_count(proxy.ledger) == 0)
        for tag, (row,) in rows.by_tag(proxy.ledger, "case").items():
            assert (row["outcome"], row["http_status"]) == ("upstream_cut", None), tag
            assert row["usage_source"] == "none", tag
            assert row["error_code"] == codes[tag], tag
        assert untrusted.requests == []


@pytest.fixture(scope="module")
def killing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(
        tmp_path_factory.mktemp("killing"), with_bare=False, beside=(SCRIPTS / "killer.py",)
    ) as running:
        yield running


def test_a_flow_killed_before_it_goes_upstream(killing: Pair) -> None:
    """Nothing was asked of anybody, so nothing is recorded."""
    killing.upstream.script = speak(OPENAI)
    killing.requests()
    tag = new_tag()
    killed(killing, tag, "request")
    after = new_tag()
    exchange(killing.tee, OPENAI, after)
    assert len(killing.requests()) == 1
    assert tag not in rows.by_tag(killing.tee.ledger, "case")
    assert killing.row(after)["outcome"] == "complete"


@pytest.mark.parametrize(("wire", "ask"), EVERY_ASK)
def test_a_flow_killed_before_its_body(killing: Pair, wire: Wire, ask: Ask) -> None:
    killing.upstream.script = speak(wire)
    tag = new_tag()
    killed(killing, tag, "responseheaders", wire, ask)
    row = killing.settled_row(tag)
    assert (row["state"], row["outcome"], row["source"]) == ("lost", "lost", "live")
    assert row["settled_at"] > row["opened_at"]
    assert rows.open_count(killing.tee.ledger) == 0


def killed(killing: Pair, tag: str, hook: str, wire: Wire = OPENAI, ask: Ask = Ask.ASKED) -> None:
    with Http1(killing.tee.address()) as client:
        post(client, wire, tag, ("x-kill", hook), asked=ASKED[ask])
        with pytest.raises((BrokenHttpError, ConnectionResetError)):
            client.receive()


def test_a_flow_killed_when_all_has_passed(killing: Pair) -> None:
    """The answer is over for the meter, whatever is then done to the flow."""
    killing.upstream.script = speak(OPENAI)
    tag = new_tag()
    with Http1(killing.tee.address()) as client:
        post(client, OPENAI, tag, ("x-kill", "response"), asked=True)
        received = client.receive()
    assert received.body == b"".join(OPENAI.answer(asked=True))
    row = killing.settled_row(tag)
    assert (row["outcome"], row["output_tokens"]) == ("complete", 64)


def test_exchanges_that_are_no_llm_calls_leave_no_trace(killing: Pair) -> None:
    killing.upstream.script = lambda _: Answer(pieces=(b"{}",), content_type="application/json")
    before = len(rows.exchanges(killing.tee.ledger))
    with Http1(killing.tee.address()) as client:
        client.send("GET", "/v1/models")
        assert client.receive().body == b"{}"
    exchange(killing.tee, OPENAI, new_tag())
    assert len(rows.exchanges(killing.tee.ledger)) == before + 1


@pytest.mark.parametrize(
    ("how", "hangs"),
    [pytest.param(signal.SIGTERM, True, id="SIGTERM"), pytest.param(signal.SIGINT, False, id="^C")],
)
def test_stopped_with_streams_open(tmp_path: Path, how: signal.Signals, *, hangs: bool) -> None:
    """What can end in the time that a stop takes does; what cannot is settled as lost.

    One stream of each kind is open, in the middle; what it had reported stays as partial.
    """
    with ExitStack() as running:
        upstream = running.enter_context(Upstream(speak(OPENAI)))
        gates = []

        def answer(request: Request) -> Answer:
            wire = BY_NAME[request.header("x-wire") or ""]
            frames = wire.answer(asked=asks(request.body))
            gates.append(upstream.gate())
            gates[-1].release()
            return Answer(
                pieces=(b"".join(frames[: wire.cut_after]), b"".join(frames[wire.cut_after :])),
                content_type=wire.content_type,
                gate=gates[-1],
            )

        upstream.script = answer
        proxy = tee_before(upstream, tmp_path).start()
        open_streams = []
        for wire, ask in EVERY_ASK:
            client = running.enter_context(Http1(proxy.address()))
            tag = new_tag()
            post(client, wire, tag, ("x-wire", wire.name), asked=ASKED[ask])
            received = client.head()
            client.more(received)
            open_streams.append((client, received, wire, ask, tag))
        proxy.process.send_signal(how)
        assert proxy.wait_for_log("waiting up to")
        for gate in [] if hangs else gates:
            gate.release()
        for client, received, wire, ask, _ in open_streams:
            # The client gets what a request that asks for usage brings, or no usage.
            whole = wire.answer(asked=ask is Ask.ASKED or not wire.is_opt_in)
            expected = whole[: wire.cut_after] if hangs else whole
            assert client.rest(received).body == b"".join(expected), wire.name
        assert proxy.wait() == 0
    found = rows.by_tag(proxy.ledger, "case")
    assert len(found) == len(EVERY_ASK)
    for _, _, wire, _, tag in open_streams:
        (row,) = found[tag]
        figures = wire.figures_cut if hangs else wire.figures
        assert row["outcome"] == ("lost" if hangs else "complete"), wire.name
        assert {name: row[name] for name in figures} == figures
    assert "Addon error" not in proxy.log


def test_upstream_that_says_nothing_until_the_client_gives_up(killing: Pair) -> None:
    """No answer at all within the client's own timeout."""

    async def silent(
        _: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.read(1)

    killing.upstream.script = lambda _: silent
    tag = new_tag()
    with Http1(killing.tee.address()) as client:
        post(client, OPENAI, tag, asked=True)
        assert rows.eventually(lambda: bool(rows.by_tag(killing.tee.ledger, "case").get(tag)))
        client.leave()
    row = killing.settled_row(tag)
    assert (row["outcome"], row["http_status"]) == ("client_left", None)
    assert row["usage_source"] == "none"


def test_answers_that_are_not_streamed_and_end_badly(killing: Pair) -> None:
    """A JSON body that is cut, and one that its client does not wait for."""
    document = b'{"id":"chatcmpl-cut","usage":{"prompt_tokens":1,"completion_tokens":1}'
    cut, left = new_tag(), new_tag()
    killing.upstream.script = lambda _: Answer(
        pieces=(document,),
        content_type="application/json",
        framing=Framing.LENGTH,
        end=End.FIN,
    )
    body = b'{"model":"gpt-4o","messages":[]}'
    with Http1(killing.tee.address()) as client:
        post(client, OPENAI, cut, body=body)
        client.receive()
    assert killing.settled_row(cut)["outcome"] == "upstream_cut"

    killing.upstream.script = lambda _: Answer(
        pieces=(document,),
        content_type="application/json",
        framing=Framing.CHUNKED,
        end=End.HELD,
    )
    with Http1(killing.tee.address()) as client:
        # The other addon may want the whole body, so none of it is sent before its end.
        post(client, OPENAI, left, body=body)
        assert rows.eventually(lambda: bool(rows.by_tag(killing.tee.ledger, "case").get(left)))
        client.leave()
    assert killing.settled_row(left)["outcome"] == "client_left"


def test_a_body_that_ends_by_closing_and_is_reset_between_two_frames(killing: Pair) -> None:
    """The finish reason has come, so that only the reset tells that more was to come."""
    for asked in (True, None):
        for end, outcome in ((End.RST, "upstream_cut"), (End.FIN, "complete")):
            tag = closed_behind_the_finish(killing.upstream, killing.tee, end, asked=asked)
            row = killing.settled_row(tag)
            assert row["outcome"] == outcome
            code = "connection_cut" if end is End.RST else None
            assert row["error_code"] == code


def test_a_body_that_ends_by_closing_and_is_reset_over_tls(tmp_path: Path) -> None:
    """A reset below TLS, and a close without TLS's own goodbye, after the finish reason."""
    pem = make_certificate(tmp_path)
    options = {"ssl_verify_upstream_trusted_ca": str(pem)}
    with (
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as upstream,
        Mitmdump(tmp_path / "tee", upstreams=[upstream.url], options=options) as proxy,
    ):
        for end, outcome in ((End.RST, "upstream_cut"), (End.PROPER, "complete")):
            tag = closed_behind_the_finish(upstream, proxy, end, asked=None)
            assert rows.eventually(lambda: rows.open_count(proxy.ledger) == 0)
            (row,) = rows.by_tag(proxy.ledger, "case")[tag]
            assert row["outcome"] == outcome, end


def closed_behind_the_finish(
    upstream: Upstream, proxy: Mitmdump, end: End, *, asked: bool | None
) -> str:
    """The tag of an exchange whose upstream ends its connection when the client has every byte."""
    pieces = (
        b'data: {"id":"c-1","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
        b'data: {"id":"c-1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    )
    gate = upstream.gate()
    answer = Answer(pieces=(*pieces, b""), framing=Framing.CLOSE, end=end, gate=gate)
    upstream.script = lambda _: answer
    tag = new_tag()
    with Http1(proxy.address()) as client:
        post(client, OPENAI, tag, asked=asked)
        gate.release(2)
        received = client.head()
        while len(received.body) < sum(map(len, pieces)) and client.more(received):
            pass
        gate.release()  # what was sent has arrived: the reset takes nothing of it away
        assert client.rest(received).body == b"".join(pieces)
    return tag
