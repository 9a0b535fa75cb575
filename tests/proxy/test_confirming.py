"""At a host that no table names, a real proxy books LLM calls alone, and fetched results once."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.pair import Pair, pair
from tests.proxy.upstream import Answer, End, document

pytestmark = pytest.mark.proxy

DONE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
USAGE = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
LINE = {
    "custom_id": "a",
    "response": {
        "status_code": 200,
        "body": {
            "id": "chatcmpl-b",
            "object": "chat.completion",
            "model": "m",
            "choices": [],
            "usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11},
        },
    },
}
CHUNK = {"id": "c-1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("confirming")
    with pair(folder, with_bare=False, options={"tee_hosts": "llm.example"}) as both:
        yield both


def ask(proxies: Pair, method: str, path: str, body: bytes, answer: Answer) -> bytes:
    """What the client gets for a request that upstream answers so."""

    proxies.upstream.script = lambda _: answer
    with Http1(proxies.tee.address()) as client:
        client.send(method, path, [("content-type", "application/json")], body)
        return client.receive().body


def as_json(value: object) -> Answer:
    return document(json.dumps(value).encode())


def booked(proxies: Pair) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (row["dialect"], row["outcome"], row["input_tokens"], row["output_tokens"])
        for row in rows.exchanges(proxies.tee.ledger)
    ]


def test_what_is_booked_and_what_is_not(proxies: Pair) -> None:
    form = json.dumps({"answers": [1, 2]}).encode()
    for path in ("/api/forms/7/responses", "/v1/messages", "/moderations", "/api/generate"):
        saved = as_json({"id": "r1", "status": "saved", "usage": {"views": 3}})
        assert ask(proxies, "POST", path, form, saved) == saved.body
    assert booked(proxies) == []

    # The request cannot be read; the stream confirms the call with its first frame.
    frames = [b"data: " + json.dumps(CHUNK).encode() + b"\n\n", b"data: [DONE]\n\n"]
    stream = Answer(pieces=tuple(frames), content_type="text/event-stream")
    assert ask(proxies, "POST", "/v1/chat/completions", b"\x00?", stream) == b"".join(frames)
    assert booked(proxies) == [("openai.chat", "complete", None, None)]

    # A response in the background: two polls, and its result three times.
    for _ in range(2):
        waits = as_json(DONE | {"status": "in_progress", "usage": None})
        ask(proxies, "GET", "/v1/responses/resp_1", b"", waits)
    there = as_json(DONE | {"usage": USAGE})
    for _ in range(3):
        assert ask(proxies, "GET", "/v1/responses/resp_1", b"", there) == there.body
    assert booked(proxies)[1:] == [("openai.responses", "complete", 30, 12)]

    # A batch's output file, fetched twice; another file is none.
    lines = Answer(
        pieces=((json.dumps(LINE) + "\n").encode() * 2,), content_type="application/octet-stream"
    )
    for _ in range(2):
        assert ask(proxies, "GET", "/v1/files/f1/content", b"", lines) == lines.body
    ask(proxies, "GET", "/v1/files/f2/content", b"", as_json({"title": "Report"}))
    assert booked(proxies)[2:] == [("openai.batch_output", "complete", 10, 12)]
    row = rows.exchanges(proxies.tee.ledger)[-1]
    assert (row["service_tier"], row["response_id"]) == ("batch", "chatcmpl-b")


def test_a_response_that_was_booked_is_not_booked_again_when_it_is_fetched(proxies: Pair) -> None:
    before = len(booked(proxies))
    whole = as_json(DONE | {"id": "resp_2", "usage": USAGE})
    request = json.dumps({"model": "m", "input": "Hi"}).encode()
    assert ask(proxies, "POST", "/v1/responses", request, whole) == whole.body
    assert ask(proxies, "GET", "/v1/responses/resp_2", b"", whole) == whole.body
    assert booked(proxies)[before:] == [("openai.responses", "complete", 30, 12)]


def counted(ledger: Path) -> tuple[int, int | None]:
    """Requests and input tokens in the totals."""
    (row,) = rows.query(ledger, "SELECT COUNT(*) AS n, SUM(input_tokens) AS tokens FROM requests")
    return row["n"], row["tokens"]


def test_a_response_that_is_fetched_after_a_restart_is_not_booked_again(tmp_path: Path) -> None:
    """The rule of duplicates knows it, also where it was streamed first and has other bytes."""
    response = DONE | {"id": "resp_3", "usage": USAGE}
    event = json.dumps({"type": "response.completed", "response": response})
    streamed = Answer(
        pieces=(f"event: response.completed\ndata: {event}\n\n".encode(),),
        content_type="text/event-stream",
    )
    request = json.dumps({"model": "m", "input": "Hi", "stream": True}).encode()
    with pair(tmp_path, with_bare=False, options={"tee_hosts": "llm.example"}) as both:
        ask(both, "POST", "/v1/responses", request, streamed)
        for _ in range(2):
            both.tee.stop()
            both.tee.start()
            ask(both, "GET", "/v1/responses/resp_3", b"", as_json(response))
        assert len(rows.exchanges(both.tee.ledger)) == 3
        assert counted(both.tee.ledger) == (1, 30)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_estimate_of_a_stream_gives_way_to_its_figures(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    """OpenAI's `starting_after`, llama.cpp's `/v1/stream`: taken up again, twice."""
    text = {"type": "response.output_text.delta", "delta": "Hello there, how are you?"}
    created = {"type": "response.created", "response": DONE | {"id": "resp_4", "status": "queued"}}
    completed = {
        "type": "response.completed",
        "response": DONE | {"id": "resp_4", "usage": USAGE},
    }
    chunk = CHUNK | {"choices": [{"index": 0, "delta": {"content": "Hello there"}}]}
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    end = CHUNK | {"choices": [], "usage": usage}
    asked = {"model": "m", "stream": True}
    cases = (
        ("/v1/responses", asked | {"input": "Hi"}, [created, text], [text, completed],
         "/v1/responses/resp_4?stream=true&starting_after=1"),
        ("/v1/chat/completions", asked | {"messages": []}, [chunk], [chunk, end],
         "/v1/stream?conv_id=c"),
    )  # fmt: skip
    with pair(tmp_path, with_bare=False, options={"tee_hosts": "llm.example"}) as both:
        for path, body, first, rest, again in cases:
            pieces = [tuple(b"data: %s\n\n" % json.dumps(each).encode() for each in part)
                      for part in (first, rest)]  # fmt: skip
            cut = Answer(pieces=pieces[0], end=End.RST)
            both.upstream.script = lambda _, cut=cut: cut  # type: ignore[misc]
            with Http1(both.tee.address()) as client, contextlib.suppress(OSError, EOFError):
                client.send("POST", path, [], json.dumps(body).encode())
                client.receive()
            for _ in range(2):
                if is_restarted:
                    both.tee.stop()
                    both.tee.start()
                whole = Answer(pieces=(*pieces[1], b"data: [DONE]\n\n"))
                assert ask(both, "GET", again, b"", whole) == whole.body
        found = rows.query(
            both.tee.ledger, "SELECT dialect, output_tokens FROM requests ORDER BY opened_at"
        )
        readings = rows.query(
            both.tee.ledger,
            "SELECT revision, usage_source FROM readings ORDER BY opened_at, revision",
        )
        assert [tuple(each.values()) for each in found] == [
            ("openai.responses", 12), ("openai.chat", 6)
        ]  # fmt: skip
        assert [(each["revision"], each["usage_source"]) for each in readings] == [
            (1, "estimated"), (2, "reported"), (1, "estimated"), (2, "reported")
        ]  # fmt: skip
