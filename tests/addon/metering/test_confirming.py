"""Only LLM calls get a row: on an unknown host, request or answer must confirm what a path says."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from addon.metering.exchange import MeteredExchange
from addon.metering.opening import RunRules, Upstream
from addon.metering.requests.messages import Body, End
from tests.addon.metering.opened import REQUEST, maybe_opened, opened, tapped

NOW = datetime(2026, 11, 20, tzinfo=UTC)
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
DONE = {"ok": True}

# method, path, request body, answer: what other kinds of services get and give at such paths.
INNOCENT: list[tuple[str, str, Any, Any]] = [
    # Forms and surveys
    ("POST", "/api/forms/7/responses", {"answers": [{"q": 1, "value": "yes"}]}, {"id": "r1"}),
    ("POST", "/v3/surveys/12/responses", {"custom_variables": {}, "pages": []}, {"id": "9"}),
    ("POST", "/forms/abc/responses", b"name=Ada&mail=ada%40example.org", DONE),
    ("POST", "/api/v1/quiz/3/responses", {"input": "B", "question": 4}, {"correct": True}),
    ("POST", "/v1/polls/5/responses", {"model": 3, "input": [1, 2]}, {"output": "thanks"}),
    ("GET", "/api/forms/7/responses/resp_12", None, {"id": "resp_12", "answers": []}),
    # SMS, chat, mail
    ("POST", "/v1/messages", {"to": "+491", "from": "Acme", "body": "Hi"}, {"id": "m1"}),
    ("POST", "/v1/messages", {"channel": "c", "messages": ["a", "b"]}, {"sent": 2}),
    ("POST", "/2010-04-01/Accounts/AC1/Messages", b"To=%2B49&Body=Hi", {"sid": "SM1"}),
    ("POST", "/api/v10/channels/1/messages", {"content": "Hi"}, {"id": "1", "type": 0}),
    ("POST", "/rooms/7/messages", {"text": "Hi", "model": "v2"}, {"id": 3, "type": "message"}),
    ("POST", "/v3/acme.example/messages", b"--x\r\nname=to\r\n--x--", {"id": "<1@acme>"}),
    ("POST", "/api/v1/chat", {"model": "support", "input": "Where is it?"}, {"answer": "Here"}),
    ("POST", "/api/chat", {"room": 1, "message": "Hi"}, {"id": 5, "message": "Hi"}),
    ("POST", "/v2/chat", {"message": "Hi"}, {"id": "c", "messages": []}),
    ("POST", "/api/v2/conversations", {"subject": "Broken", "requester": 3}, {"id": 1}),
    ("POST", "/chat-messages", {"room": 1, "text": "Hi"}, {"message_id": "1"}),
    # Discord and game servers
    ("POST", "/api/v10/interactions", {"type": 1, "token": "t"}, {"type": 1}),
    ("POST", "/v1/interactions", {"player": 1, "object": 7}, {"interaction": {"id": 4}}),
    ("GET", "/v1/interactions/8", None, {"id": 8, "interaction": {"id": "8"}}),
    ("POST", "/api/generate", {"map": "island", "seed": 42}, {"url": "/maps/1"}),
    ("POST", "/generate", {"seed": 42, "size": [64, 64]}, {"world": "w1", "done": True}),
    ("POST", "/api/v1/generate", {"model": "level", "seed": 1}, {"level": [0, 1]}),
    ("POST", "/v1/complete", {"quest": 4}, {"reward": 100}),
    ("POST", "/completion", {"course": 1, "stop": True}, {"content": "certificate"}),
    ("POST", "/v1/predictions", {"match": 1, "winner": "a"}, {"id": "p", "status": "open"}),
    ("GET", "/v1/predictions/7", None, {"id": "7", "status": "settled", "urls": {}}),
    # CMS, moderation, issue trackers
    ("POST", "/moderations", {"comment_id": 4, "action": "hide"}, {"id": "4", "results": []}),
    ("POST", "/v1/moderations", {"input": "4"}, {"id": "4", "status": "queued"}),
    ("POST", "/wp-json/cms/v1/completions", {"post": 3}, {"choices": ["a", "b"]}),
    ("POST", "/autocomplete/completions", {"q": "ber", "prompt": "city"}, {"choices": ["Berlin"]}),
    ("POST", "/issues/12/embeddings", {"url": "https://v.example"}, {"html": "<iframe>"}),
    ("POST", "/api/embed", {"url": "https://v.example/1"}, {"html": "<iframe>"}),
    ("POST", "/v1/embed", {"url": "https://v.example/1"}, {"html": "<iframe>"}),
    ("POST", "/threads/44/runs", {"suite": "nightly"}, {"id": 1, "object": "run"}),
    ("GET", "/threads/44/runs/run_1", None, {"id": "run_1", "status": "passed"}),
    ("POST", "/api/v4/projects/1/workflows/run", {"inputs": {"ref": "main"}}, {"id": 5}),
    ("POST", "/workflows/run", {"workflow": "deploy"}, {"workflow_run_id": 3, "data": {}}),
    ("POST", "/rerank", {"list": 7, "query": "x"}, {"results": [{"id": 1}]}),
    # Media
    ("POST", "/images/generations", {"image": 3, "sizes": [64]}, {"created": 1, "data": []}),
    ("POST", "/gallery/images/edits", {"id": 3, "crop": [0, 0, 1, 1]}, {"created": 17}),
    ("POST", "/audio/speech", {"event": 3, "file": "a.mp3"}, {"id": 1}),
    ("POST", "/audio/transcriptions", {"episode": 3}, {"text": "by hand", "editor": "Ada"}),
    # Files, batches, jobs
    ("GET", "/me/drive/files/1/content", None, {"title": "Report", "usage": {"views": 3}}),
    ("GET", "/v1/files/9/content", None, [{"custom_id": "1", "response": {"status_code": 200}}]),
    ("GET", "/v1/messages/batches/9/results", None, {"sent": 3}),
    ("POST", "/endpoints/health/invocations", {"instances": [[1.0, 2.0]]}, {"predictions": [0.1]}),
    (
        "POST",
        "/invocations",
        {"dataframe_split": {"columns": [], "data": []}},
        {"predictions": [1]},
    ),
    ("POST", "/models/churn:predict", {"instances": [{"age": 3}]}, {"predictions": [{"p": 0.2}]}),
    ("POST", "/v1/models/churn:predict", {"instances": [[1]]}, {"predictions": [[0.4]]}),
    ("POST", "/model/car-7/invoke", {"brake": True}, {"state": "braking"}),
    ("POST", "/actions/chat", {"room": 1}, {"opened": True}),
    ("POST", "/text/generation", {"model_id": "flyer", "pages": 3}, {"results": [{"page": 1}]}),
    ("POST", "/text/chat", {"messages": [{"from": "a", "body": "Hi"}]}, {"id": "c1"}),
    # GraphQL, JSON-RPC, webhooks
    ("POST", "/graphql/responses", {"query": "{ me { id } }"}, {"data": {"me": {"id": 1}}}),
    ("POST", "/rpc/messages", {"jsonrpc": "2.0", "method": "x", "id": 1}, {"result": 1}),
    ("POST", "/mcp/messages", {"jsonrpc": "2.0", "method": "tools/list", "id": 1}, {"result": {}}),
    ("POST", "/webhooks/responses", {"type": "response.created", "id": "evt"}, DONE),
    ("POST", "/v1/responses", b"\x1f\x8b not json", DONE),
    ("POST", "/chat/completions", {"lesson": 4, "percent": 100}, {"object": "completion"}),
    ("POST", "/chat/completions", None, "Bad Request"),
]

HI = [{"role": "user", "content": "Hi"}]
CHAT = {"id": "c", "object": "chat.completion", "choices": [{"message": {"content": "x"}}]}
REAL: list[tuple[str, str, Any, Any]] = [
    ("POST", "/v1/chat/completions", {"model": "m", "messages": HI}, {"error": {"message": "no"}}),
    ("POST", "/v1/chat/completions", b"\x00 a body that cannot be read", CHAT),
    ("POST", "/proxy/llm/v1/messages", {"model": "m", "max_tokens": 5, "messages": HI}, DONE),
    ("POST", "/v1/responses", {"model": "m", "input": "Hi"}, DONE),
    ("POST", "/v1/responses", None, {"id": "resp_1", "object": "response", "output": []}),
    ("POST", "/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "x"}]}]}, DONE),
    ("POST", "/api/chat", {"model": "llama3", "messages": HI}, DONE),
    ("POST", "/api/generate", {"model": "llama3", "prompt": "Hi"}, DONE),
    ("POST", "/v1/embeddings", {"model": "m", "input": ["a"]}, DONE),
    ("POST", "/v1/images/edits", b"--x no fields --x--", {"created": 1, "data": [{"b64_json": ""}]}),
    ("POST", "/audio/transcriptions", b'--x\r\nname="model"\r\n\r\nwhisper-1\r\n--x--', DONE),
    ("POST", "/completion", {"prompt": "Hi"}, {"content": "x", "tokens_predicted": 1}),
    ("POST", "/api/v1/chat", {"model": "m", "input": "x"}, {"model_instance_id": "m", "stats": {}}),
    ("GET", "/v1/responses/resp_1", None, {"id": "resp_1", "object": "response", "usage": {"input_tokens": 1}}),
]  # fmt: skip


def exchange_of(
    method: str, path: str, body: Any, answer: Any, *, host: str = "app.example", rules: RunRules
) -> MeteredExchange | None:
    """The exchange after its answer has passed."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    kind = FORM if isinstance(body, bytes) else JSON
    request = structs.replace(
        REQUEST,
        method=method,
        host=host,
        path=path,
        headers={"content-type": kind},
        body=Body(sent),
    )
    exchange = maybe_opened(request, rules)
    if exchange is not None:
        tapped(exchange, json.dumps(answer).encode())
        exchange.settle(End.FINISHED, cause=None, now=NOW)
    return exchange


ANYWHERE = RunRules(node="n")


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [pytest.param(*case, id=f"{n}-{case[1]}") for n, case in enumerate(INNOCENT)],
)
def test_what_is_no_llm_call_makes_no_row(method: str, path: str, body: Any, answer: Any) -> None:
    exchange = exchange_of(method, path, body, answer, rules=ANYWHERE)
    assert exchange is None or not exchange.is_confirmed


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [pytest.param(*case, id=f"{n}-{case[1]}") for n, case in enumerate(REAL)],
)
def test_a_call_is_confirmed_by_its_request_or_its_answer(
    method: str, path: str, body: Any, answer: Any
) -> None:
    exchange = exchange_of(method, path, body, answer, rules=ANYWHERE)
    assert exchange is not None
    assert exchange.is_confirmed


def test_a_path_is_enough_at_a_known_or_configured_host() -> None:
    forms = ("POST", "/v1/chat/completions", None, DONE)
    known = exchange_of(*forms, host="api.openai.com", rules=ANYWHERE)
    assert known is not None
    assert known.is_confirmed
    rules = RunRules(node="n", upstreams=(Upstream(host="app.example"),))
    named = exchange_of(*forms, rules=rules)
    assert named is not None
    assert named.is_confirmed


def test_a_result_that_is_not_there_yet_makes_no_row_even_at_a_known_host() -> None:
    poll = ("GET", "/v1/responses/resp_1", None)
    waits = {"id": "resp_1", "object": "response", "status": "in_progress", "usage": None}
    there = waits | {"status": "completed", "usage": {"input_tokens": 3, "output_tokens": 4}}
    for answer, expected in ((waits, False), (there, True)):
        exchange = exchange_of(*poll, answer, host="api.openai.com", rules=ANYWHERE)
        assert exchange is not None
        assert exchange.is_confirmed is expected


def test_an_answer_confirms_once_and_at_its_first_frame() -> None:
    rows: list[str] = []
    request = structs.replace(REQUEST, host="app.example", headers={}, body=Body(b"?"))
    exchange = opened(request, ANYWHERE)
    frame = b'data: {"id":"c","choices":[{"delta":{"content":"x"}}]}\n\n'
    tap = tapped(
        exchange, frame * 200, "text/event-stream", on_confirmed=lambda: rows.append("row")
    )
    assert rows == ["row"]
    tap.callable(frame * 200)
    assert rows == ["row"]
    assert exchange.is_confirmed
