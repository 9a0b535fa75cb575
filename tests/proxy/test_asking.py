"""Usage that the client did not ask for: asked for in any body, never where it could hurt."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from tests.proxy import rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.client import Ending, Http1
from tests.proxy.mitmdump import SCRIPTS, Mitmdump
from tests.proxy.pair import (
    OPENAI,
    Pair,
    connect,
    exchange,
    headers_for,
    new_tag,
    pair,
    post,
    speak,
)
from tests.proxy.upstream import Answer, Request, Upstream, document
from tests.proxy.wire import asks

pytestmark = pytest.mark.proxy

BODY = OPENAI.request(asked=None)
UNASKED = b"".join(OPENAI.frames)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Before an upstream that is known to report usage only when asked."""
    with pair(tmp_path_factory.mktemp("known")) as running:
        yield running


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Before an upstream that nothing is known about."""
    with pair(tmp_path_factory.mktemp("unknown"), provider=None, with_bare=False) as running:
        yield running


ENCODINGS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, gzip.decompress),
    "deflate": (zlib.compress, zlib.decompress),
    "br": (brotli.compress, brotli.decompress),
    "zstd": (zstandard.compress, zstandard.decompress),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_asked_inside_an_encoded_body(known: Pair, encoding: str) -> None:
    encode, decode = ENCODINGS[encoding]

    def answer(request: Request) -> Answer:
        return Answer(pieces=OPENAI.answer(asked=asks(decode(request.body))))

    known.upstream.script = answer
    known.requests()
    tag = new_tag()
    received = exchange(known.tee, OPENAI, tag, ("content-encoding", encoding), body=encode(BODY))
    (request,) = known.requests()
    assert received.body == UNASKED
    assert request.header("content-encoding") == encoding
    assert json.loads(decode(request.body)) == json.loads(BODY) | {
        "stream_options": {"include_usage": True}
    }
    row = known.row(tag)
    assert (row["usage_injected"], row["usage_stripped"], row["output_tokens"]) == (True, True, 64)


@pytest.mark.parametrize(
    "send",
    [
        pytest.param({"chunks": [BODY[:10], BODY[10:11], BODY[11:]]}, id="in-a-chunked-upload"),
        pytest.param({"expect": True}, id="after-100-continue"),
    ],
)
def test_asked_however_the_body_is_sent(known: Pair, send: dict[str, Any]) -> None:
    known.upstream.script = speak(OPENAI)
    known.requests()
    tag = new_tag()
    received = exchange(known.tee, OPENAI, tag, **send)
    (request,) = known.requests()
    assert received.body == UNASKED
    assert asks(request.body)
    assert known.row(tag)["output_tokens"] == 64
    assert known.row(tag)["usage_stripped"] is True


def test_only_what_is_added_differs(known: Pair) -> None:
    """Spliced into the bytes: spelling, number formats, escapes and duplicate keys stay."""
    body = (
        b'{ "model":"gpt-4o", "stream" : true, "temperature": 1.0, "seed": 1e2, "user":"\\u00e9",'
        b'\n "model":"gpt-4o-mini", "messages":[ ] }'
    )
    known.upstream.script = speak(OPENAI)
    known.requests()
    exchange(known.tee, OPENAI, new_tag(), body=body)
    (request,) = known.requests()
    added = b'"stream_options":{"include_usage":true},'
    assert request.body.count(added) == 1
    assert request.body.replace(added, b"") == body


LEFT_ALONE = [
    pytest.param(
        BODY,
        [("authorization", "AWS4-HMAC-SHA256 Credential=A/20260101/us/x, Signature=0")],
        id="signed-header",
    ),
    pytest.param(BODY, [("x-amz-content-sha256", "0" * 64), ("x-amz-date", "x")], id="signed-body"),
    pytest.param(b'{"model":"gpt-4o","messages":[]}', [], id="not-streamed"),
    pytest.param(b'{"model":"gpt-4o","stream":true,"messages":[', [], id="broken-json"),
    pytest.param(b'["stream", true]', [], id="not-an-object"),
    pytest.param(b"\xff\xfe\x00", [], id="not-text"),
    pytest.param(BODY, [("content-encoding", "gzip")], id="not-what-it-says"),
    pytest.param(BODY, [("content-encoding", "x-own")], id="unknown-encoding"),
]


@pytest.mark.parametrize(("body", "headers"), LEFT_ALONE)
def test_left_alone(known: Pair, body: bytes, headers: list[tuple[str, str]]) -> None:
    """Where it cannot or must not be asked, the request is the client's to the last byte."""
    known.upstream.script = lambda _: Answer(pieces=OPENAI.frames)
    known.requests()
    assert known.bare is not None
    tag = new_tag()
    more = [*headers, ("accept-encoding", "gzip, br")]
    ours = exchange(known.tee, OPENAI, tag, *more, body=body)
    control = exchange(known.bare, OPENAI, tag, *more, body=body)
    asked, asked_bare = known.requests()
    assert asked.body == asked_bare.body == body
    assert asked.header("accept-encoding") == "gzip, br"
    assert ours.body == control.body
    row = known.row(tag)
    assert (row["usage_injected"], row["usage_stripped"]) == (False, False)


def refuse(request: Request, *, message: str, status: int = 400) -> Answer:
    """An upstream that does not know the parameter."""
    if not asks(request.body):
        return Answer(pieces=OPENAI.frames)
    error = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    return document(json.dumps(error).encode(), status)


def test_a_refusal_never_reaches_the_client(known: Pair) -> None:
    """Asked again without our addition, once, and remembered for the next request."""
    assert known.bare is not None
    known.upstream.script = lambda request: refuse(
        request, message="Unrecognized request argument supplied: stream_options"
    )
    known.requests()
    first, second = new_tag(), new_tag()
    accept = ("accept-encoding", "gzip")
    ours = exchange(known.tee, OPENAI, first, accept, prefix="/refuses")
    control = exchange(known.bare, OPENAI, first, accept, prefix="/refuses")
    refused, again, of_control = known.requests()
    assert ours.body == control.body == UNASKED
    assert ours.status == 200
    assert set(ours.headers) == set(control.headers)
    assert asks(refused.body)
    assert again.body == of_control.body == BODY
    assert again.header("accept-encoding") == "gzip"
    assert again.header("content-length") == str(len(BODY))
    row = known.row(first)
    assert row["resent"] is True
    assert row["usage_injected"] is False
    assert (row["outcome"], row["http_status"]) == ("complete", 200)

    exchange(known.tee, OPENAI, second, prefix="/refuses")
    (only,) = known.requests()
    assert only.body == BODY
    assert known.row(second)["resent"] is False


def test_a_refusal_over_http2(tmp_path: Path) -> None:
    """Client, upstream, and both: the second request goes within the same exchange."""
    pem = make_certificate(tmp_path)

    def answer(request: Request) -> Answer:
        return refuse(request, message="unknown field include_usage")

    with (
        Upstream(answer) as plain,
        Upstream(answer, tls=server_context(pem, http2=True)) as secure,
        Mitmdump(
            tmp_path / "tee",
            upstreams=[plain.url, secure.url],
            beside=[SCRIPTS / "h2_upstream.py"],
            options={
                "ssl_verify_upstream_trusted_ca": str(pem),
                "tee_hosts": f"127.0.0.1:{plain.port}=aivene,127.0.0.1:{secure.port}=aivene",
            },
        ) as proxy,
    ):
        for name, index, is_h2 in (("2-1", 0, True), ("1-2", 1, False), ("2-2", 1, True)):
            # A path of its own, for what was learned holds for a path.
            target = f"/{name}/v1/chat/completions"
            with connect(proxy, index, is_h2=is_h2) as client:
                for turn in range(2):
                    tag = f"{name} {turn}"
                    client.send("POST", target, headers_for(OPENAI, tag), BODY)
                    received = client.receive()
                    assert (received.status, received.body) == (200, UNASKED), name
                    if isinstance(client, Http1):
                        break  # what comes from HTTP/2 is ended by closing
            (row,) = rows.by_tag(proxy.ledger, "case")[f"{name} 0"]
            assert row["resent"] is True
        asked = [asks(request.body) for request in plain.requests]
        assert asked == [True, False, False]
        asked = [asks(request.body) for request in secure.requests]
        assert asked == [True, False, True, False, False]


def test_a_refusal_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with pair(tmp_path, with_bare=False) as running:
        running.upstream.script = lambda request: refuse(request, message="no stream_options here")
        exchange(running.tee, OPENAI, new_tag())
        assert len(running.requests()) == 2
        running.tee.stop()
        running.tee.start()
        exchange(running.tee, OPENAI, new_tag())
        assert len(running.requests()) == 1


def test_the_clients_own_mistake_comes_back_to_it(known: Pair) -> None:
    """An error that has nothing to do with us reaches the client as it is."""

    def reject(request: Request) -> Answer:
        if b"broken" not in request.body:
            return Answer(pieces=OPENAI.answer(asked=asks(request.body)))
        error = b'{"error":{"message":"no such model","type":"invalid_request_error"}}'
        return document(error, 400)

    assert known.bare is not None
    known.upstream.script = reject
    exchange(known.tee, OPENAI, new_tag())  # it has answered such a request before
    known.requests()
    tag = new_tag()
    body = BODY.replace(b"gpt-4o", b"broken")
    ours = exchange(known.tee, OPENAI, tag, body=body)
    assert len(known.requests()) == 1
    control = exchange(known.bare, OPENAI, tag, body=body)
    assert (ours.status, ours.body) == (control.status, control.body)
    assert set(ours.headers) == set(control.headers)
    row = known.row(tag)
    assert row["outcome"] == "http_error"
    errors = row["error_type"], row["error_code"], row["error_message"]
    assert errors == ("invalid_request_error", "model_not_found", None)


def test_an_unknown_upstream_is_watched_first(unknown: Pair) -> None:
    """Its first unasked stream passes as it is; having shown no usage, the second is asked."""
    unknown.upstream.script = speak(OPENAI)
    unknown.requests()
    tags = [new_tag() for _ in range(2)]
    for tag in tags:
        assert exchange(unknown.tee, OPENAI, tag, prefix="/opt-in").body == UNASKED
    assert [asks(request.body) for request in unknown.requests()] == [False, True]
    assert unknown.row(tags[0])["output_tokens"] is None
    assert unknown.row(tags[1])["output_tokens"] == 64


def test_an_upstream_that_reports_by_itself_is_never_asked(unknown: Pair) -> None:
    assert OPENAI.frames_asked is not None
    unknown.upstream.script = lambda _: Answer(pieces=OPENAI.frames_asked or ())
    unknown.requests()
    tags = [new_tag() for _ in range(3)]
    for tag in tags:
        received = exchange(unknown.tee, OPENAI, tag, prefix="/automatic")
        assert received.body == b"".join(OPENAI.frames_asked)
        assert unknown.row(tag)["output_tokens"] == 64
    assert not any(asks(request.body) for request in unknown.requests())


@pytest.mark.parametrize(("mode", "asked"), [("auto", True), ("always", True), ("never", False)])
def test_the_operator_decides(tmp_path: Path, mode: str, *, asked: bool) -> None:
    with pair(
        tmp_path, provider="someone-new", with_bare=False, options={"tee_inject": mode}
    ) as running:
        assert exchange(running.tee, OPENAI, new_tag()).body == UNASKED
        (request,) = running.requests()
        assert asks(request.body) is asked


def test_an_upstream_that_encodes_all_the_same(known: Pair) -> None:
    """Asked for identity it sends gzip: it is decoded, so that the usage can be taken out."""
    packed = gzip.compress(b"".join(OPENAI.answer(asked=True)))

    def answer(_: Request) -> Answer:
        return Answer(
            pieces=(packed[:50], packed[50:300], packed[300:]),
            headers=(("content-encoding", "gzip"),),
        )

    known.upstream.script = answer
    tag = new_tag()
    received = exchange(known.tee, OPENAI, tag, ("accept-encoding", "gzip"))
    assert received.body == UNASKED
    assert received.header("content-encoding") is None
    row = known.row(tag)
    assert (row["usage_injected"], row["usage_stripped"]) == (True, True)
    assert (row["input_tokens"], row["output_tokens"]) == (1200, 64)


def test_what_cannot_be_decoded_does_not_end_as_if_it_were_whole(known: Pair) -> None:
    """Its client would have failed to decode it; now its connection is broken off."""
    packed = gzip.compress(b"".join(OPENAI.answer(asked=True)))
    broken = packed[: len(packed) // 2] + b"\xff" * 200
    known.upstream.script = lambda _: Answer(
        pieces=(broken,), headers=(("content-encoding", "gzip"),)
    )
    tag = new_tag()
    with Http1(known.tee.address()) as client:
        post(client, OPENAI, tag, asked=None)
        received = client.receive()
    assert received.ending is Ending.CLOSED
    assert UNASKED.startswith(received.body)
    assert "the content-encoding is broken" in known.settled_row(tag)["degraded"]
