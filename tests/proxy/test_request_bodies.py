"""What is known of a request's body, through every door that a body can take.

A request is buffered, streamed from its head on, or streamed once it has become long; it is plain,
compressed, or broken. Whatever upstream repeats of it, no part of a prompt is stored, and headers
that are for us do not go upstream.
"""

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.proxy.client import Http1
from tests.proxy.pair import OPENAI, Pair, headers_for, new_tag, pair, post
from tests.proxy.upstream import Answer, End, Request, document

pytestmark = pytest.mark.proxy

SECRET = "our merger with Globex closes on Friday; tell nobody before that"
STREAMED_FROM = 4_096
RUN = 16


def prompt(size: int) -> bytes:
    text = SECRET + " " + "x" * size
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


BODIES = {
    "short": (prompt(10), ()),
    "long": (prompt(3 * STREAMED_FROM), ()),
    "gzip": (gzip.compress(prompt(10)), (("content-encoding", "gzip"),)),
    "broken gzip": (gzip.compress(prompt(10))[:-12], (("content-encoding", "gzip"),)),
    "unknown encoding": (prompt(10), (("content-encoding", "rot13"),)),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    options = {"stream_large_bodies": str(STREAMED_FROM)}
    with pair(tmp_path_factory.mktemp("bodies"), with_bare=False, options=options) as found:
        yield found


def quoting(_: Request) -> Answer:
    error = {"message": f"Invalid content: '{SECRET}'", "type": "invalid_request_error"}
    return document(json.dumps({"error": error}).encode(), 422)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("kind", BODIES)
def test_no_prompt_is_kept_and_no_header_of_ours_goes_on(running: Pair, kind: str, chunked: bool):
    body, more = BODIES[kind]
    running.upstream.script = quoting
    running.requests()
    tag = new_tag()
    cuts = [body[at : at + 1_000] for at in range(0, len(body), 1_000)] if chunked else None
    headers = [*headers_for(OPENAI, tag, *more), ("X-Tokentee-Session", "s1")]
    with Http1(running.tee.address()) as client:
        client.send("POST", OPENAI.target, headers, b"" if cuts else body, chunks=cuts)
        assert client.receive().status == 422
    (asked,) = running.requests()
    assert asked.body == body
    assert not [name for name, _ in asked.headers if name.lower().startswith("x-tokentee")]
    row = running.row(tag)
    assert (row["outcome"], row["error_type"]) == ("http_error", "invalid_request_error")
    assert row["session_id"] == "s1"
    if kind == "long":  # it is streamed, and nobody counts its bytes
        assert (row["request_bytes"], row["request_digest"]) == (None, None)
    stored = " ".join(str(value) for value in row.values())
    assert not [at for at in range(len(SECRET) - RUN) if SECRET[at : at + RUN] in stored]


def test_a_refusal_without_an_end_passes_on(running: Pair):
    """An error answer to a request with our question is held, to see whether it refuses the
    question. One that grows beyond the bound is none, and its client gets it as it comes."""
    pieces = tuple(b"x" * 16_384 for _ in range(8))
    gate = running.upstream.gate()
    running.upstream.script = lambda _: Answer(
        status=400, pieces=pieces, content_type="text/plain", end=End.PROPER, gate=gate
    )
    tag = new_tag()
    with Http1(running.tee.address()) as client:
        post(client, OPENAI, tag, asked=None)
        gate.release(len(pieces) - 1)
        answer = client.head()
        while len(answer.body) < 16_384 * 5:
            assert client.more(answer)
        gate.release()
        assert client.rest(answer).body == b"".join(pieces)
    assert running.row(tag)["outcome"] == "http_error"


def test_a_streamed_request_has_a_row_while_it_is_sent(running: Pair):
    running.upstream.script = quoting
    tag = new_tag()
    body = prompt(3 * STREAMED_FROM)
    with Http1(running.tee.address()) as client:
        client.send("POST", OPENAI.target, headers_for(OPENAI, tag), body)
        client.receive()
    row = running.row(tag)
    assert row["request_bytes"] is None  # nobody counted them
    assert row["request_digest"] is None
