"""Recorded answers served back: the same bytes, in the same pieces."""

import asyncio
import base64
import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded
from addon.recordings.serving import ServedAnswers, serve


def line(body: str, answer: bytes, cuts: list[list[int]], **headers: str) -> str:
    return json.dumps(
        {
            "name": answer.decode(),
            "request": {"method": "POST", "url": "https://h.example/v1/x?key=1", "body": body},
            "response": {
                "status": 200,
                "headers": headers,
                "body_b64": base64.b64encode(answer).decode(),
                "chunks": cuts,
            },
        }
    )


@pytest.fixture
def items(tmp_path: Path) -> list[Recorded]:
    path = tmp_path / "some.jsonl"
    path.write_text(
        "\n".join(
            [
                line("one", b"data: 1\n\ndata: 2\n\n", [[9, 0], [9, 1000]], a="b"),
                line("two", b"plain", [], **{"content-length": "5", "x-id": "7"}),
                line("two", b"again", [], **{"content-length": "5", "x-id": "8"}),
            ]
        )
    )
    items = [item for item in read(path, url=None) if isinstance(item, Recorded)]
    assert len(items) == 3
    return items


@pytest.fixture
def answers(items: list[Recorded]) -> ServedAnswers:
    return ServedAnswers(items)


def ask(answers: ServedAnswers, *requests: bytes) -> bytes:
    """All that one connection gets for these requests, sent one after the other."""

    async def run() -> bytes:
        server = await serve(answers, "127.0.0.1", 0, speed=0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"".join(requests))
        writer.write_eof()
        got = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        server.close()
        return got

    return asyncio.run(run())


def post(body: bytes, path: bytes = b"/v1/x", *, last: bool = True) -> bytes:
    connection = b"connection: close\r\n" if last else b""
    return b"POST %s HTTP/1.1\r\nhost: h\r\n%scontent-length: %d\r\n\r\n%s" % (
        path,
        connection,
        len(body),
        body,
    )


def test_a_stream_comes_in_its_pieces(answers: ServedAnswers):
    got = ask(answers, post(b"one"))
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 ",
        b"a: b",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
    ]
    assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"


def test_a_plain_answer_keeps_its_length(answers: ServedAnswers):
    got = ask(answers, post(b"two"))
    head = b"HTTP/1.1 200 \r\nx-id: 7\r\ncontent-length: 5\r\nConnection: close"
    assert got == head + b"\r\n\r\nplain"


@pytest.mark.parametrize("is_backwards", [False, True])
@pytest.mark.parametrize(
    ("in_turn", "body", "expected"),
    [
        (False, b"two", [b"plain"] * 3),
        (False, b"three", [b"data: 1"] * 3),
        (True, b"two", [b"plain", b"again", b"plain"]),
        (True, b"three", [b"data: 1", b"plain", b"again"]),
    ],
)
def test_equal_requests_get_the_first_answer_or_all_in_turn(
    items: list[Recorded], in_turn: bool, is_backwards: bool, body: bytes, expected: list[bytes]
):
    """First is what was asked for first, wherever it stands in the files."""
    timed = [
        replace(item, opened_at=item.opened_at + timedelta(seconds=at))
        for at, item in enumerate(items)
    ]
    answers = ServedAnswers(timed[::-1] if is_backwards else timed, in_turn=in_turn)
    found = [answers.to("POST", "/v1/x?key=2", body) for _ in expected]
    assert [answer and answer.body[:7] for answer in found] == expected


@pytest.mark.parametrize("knows_client", [True, False])
def test_a_request_gets_its_answer_with_and_without_our_question(
    items: list[Recorded], knows_client: bool
):
    """The capture says what the client sent; a flow file has only what went upstream."""
    plain = [b'{"stream":true,"user":"%d"}' % number for number in range(3)]
    question = b'{"stream_options":{"include_usage":true},'
    asked = [question + body[1:] for body in plain]
    recorded = [
        replace(
            item,
            request_body=sent,
            client_body=body if knows_client else None,
            usage_injected=True,
        )
        for item, sent, body in zip(items, asked, plain, strict=True)
    ]
    # the same request before we asked, and after
    recorded = [replace(recorded[0], request_body=plain[0], usage_injected=False), *recorded]
    recorded[0] = replace(recorded[0], client_body=None, response_body=b"first")
    answers = ServedAnswers(recorded)
    for bodies in (plain, asked):
        found = [answers.to("POST", "/v1/x", body) for body in bodies]
        assert [each and each.body[:7] for each in found] == [b"first", b"plain", b"again"]
    in_turn = ServedAnswers(recorded, in_turn=True)
    turns = [in_turn.to("POST", "/v1/x", body) for body in (plain[0], asked[0], plain[0])]
    assert [each and each.body[:7] for each in turns] == [b"first", b"data: 1", b"first"]


def test_an_unknown_body_gets_what_its_path_has(answers: ServedAnswers):
    assert ask(answers, post(b"three")).endswith(b"0\r\n\r\n")


def test_a_chunked_request_is_read(answers: ServedAnswers):
    head = (
        b"POST /v1/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    assert b"x-id: 7" in ask(answers, head + b"3\r\ntwo\r\n0\r\n\r\n")


def test_an_unknown_path_is_404(answers: ServedAnswers):
    got = ask(answers, post(b"", b"/v1/other"))
    assert got.startswith(b"HTTP/1.1 404 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["type"] == "not_recorded"


@pytest.mark.parametrize(
    "request_bytes",
    [b"POST /v1/x HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"nonsense\r\n\r\n" + b"x" * 70_000],
)
def test_nonsense_ends_the_connection(answers: ServedAnswers, request_bytes: bytes):
    assert b"200 OK" not in ask(answers, request_bytes)
