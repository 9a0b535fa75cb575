"""A request becomes the exchange that is to be metered, or none: on an unknown host, request or answer must
confirm what a path says."""

import base64
import gzip
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from addon.framing.long_json import without_pauses
from addon.metering.exchange import MeteredExchange
from addon.metering.exchange import exchange_of as maybe_exchange
from addon.metering.messages import NOT_KNOWN, Body, End, Request
from addon.metering.opening import (
    RunRules,
    Upstream,
    decoded_body_in_steps,
    is_read_in_steps,
)
from addon.metering.troubles import Troubles
from ledger.model.exchange import Source
from tests.addon.metering.opened import BODY, REQUEST, RULES, maybe_opened, opened, tapped
from tests.named import for_each


def row(request: Request = REQUEST, rules: RunRules = RULES):
    return opened(request, rules).opened


def test_what_a_request_says_is_in_the_row():
    exchange = row()
    assert exchange.origin == "https://api.openai.com:443"
    assert exchange.provider == "openai"
    assert exchange.path == "/v1/chat/completions"
    assert (exchange.request_model, exchange.streamed) == ("gpt-4o", True)
    assert exchange.key_hint == "cdef"
    assert exchange.key_fingerprint is not None
    assert exchange.request_bytes == len(BODY)
    assert (exchange.user_agent, exchange.node) == ("test/1", "here")
    assert exchange.tags == {"team": "search"}


@for_each(
    "header, query, expected",
    [
        ("2023-06-01", "", "2023-06-01"),
        ("2026-10-21", "api-version=2024-10-21", "2026-10-21"),
        (None, "api-version=2025-04-01-preview&x=1", "2025-04-01-preview"),
        (None, "x=1&api-version=preview", "preview"),
        (None, "", None),
        (None, "api-version=", None),
        (None, "x-api-version=1", None),
        ("two words", "", None),
        ("2" * 65, "", None),
        (None, "api-version=" + "2" * 5_000, None),
        (None, "api-version=%22%0a", None),
        ("sk-0123456789abcdef", "", None),
    ],
)
def test_the_api_version_that_is_asked_for_is_kept_if_it_is_a_token(header, query, expected):
    headers = {**REQUEST.headers, **({"anthropic-version": header} if header else {})}
    path = f"/v1/chat/completions?{query}"
    assert row(structs.replace(REQUEST, headers=headers, path=path)).api_version == expected


def test_other_traffic_is_no_exchange():
    other = structs.replace(REQUEST, host="intranet.example", path="/index.html")
    assert maybe_opened(other) is None


@for_each("address", [None, "10.0.0.7"])
def test_a_configured_host_is_found_by_its_name_or_its_address(address: str | None):
    host = "gateway.example" if address else "10.0.0.7"
    rules = replace(RULES, upstreams=(Upstream(host="10.0.0.7", provider="aivene"),))
    assert row(structs.replace(REQUEST, host=host, address=address), rules).provider == "aivene"


def test_an_operators_tags_win_over_a_clients_which_can_be_ignored():
    request = structs.replace(REQUEST, tag_headers=("team=finance, env=prod",))
    assert row(request).tags == {"team": "search", "env": "prod"}
    assert row(request, replace(RULES, takes_client_tags=False)).tags == {"team": "search"}


def test_a_clients_session_is_taken_and_bounded():
    headers = {**REQUEST.headers, "x-tokentee-session": "s" * 10_000}
    assert row(structs.replace(REQUEST, headers=headers)).session_id == "s" * 256


def test_an_encoded_request_is_read():
    headers = {**REQUEST.headers, "content-encoding": "gzip"}
    exchange = opened(structs.replace(REQUEST, headers=headers, body=Body(gzip.compress(BODY))))
    assert exchange.opened.request_model == "gpt-4o"


@for_each("encoding", ["identity", " Identity ", ""])
def test_an_encoding_that_is_none_is_no_trouble(encoding: str):
    headers = {**REQUEST.headers, "content-encoding": encoding}
    exchange = opened(structs.replace(REQUEST, headers=headers))
    assert exchange.opened.request_model == "gpt-4o"
    assert exchange.troubles.text is None


def test_no_character_of_a_password_is_shown():
    word = base64.b64encode(b"me:a-long-password-0123456789").decode()
    exchange = row(structs.replace(REQUEST, headers={"authorization": f"Basic {word}"}))
    assert exchange.key_hint is None
    assert exchange.key_fingerprint is not None


def test_a_broken_encoding_is_noted():
    headers = {**REQUEST.headers, "content-encoding": "gzip"}
    exchange = opened(structs.replace(REQUEST, headers=headers, body=Body(b"no gzip")))
    assert (exchange.troubles.text or "").startswith("request: ")


def test_a_websocket_may_name_its_model_in_the_url():
    request = structs.replace(
        REQUEST,
        method="GET",
        path="/v1/realtime?model=" + "m" * 4_000,
        headers={"upgrade": "WebSocket"},
        body=Body(b""),
    )
    exchange = opened(request)
    assert exchange.routes.is_handshake
    assert exchange.opened.request_model == "m" * 256
    assert maybe_opened(structs.replace(request, host="app.example", path="/chat")) is None


@for_each("status, is_call", [(426, False), (404, False), (401, True), (429, True)])
def test_a_handshake_with_a_server_that_speaks_http_alone_is_no_call(status: int, is_call: bool):
    """Codex asks again over HTTP."""
    headers = {"upgrade": "websocket"}
    request = structs.replace(
        REQUEST, method="GET", path="/v1/responses", headers=headers, body=Body(b"")
    )
    exchange = opened(request)
    tapped(exchange, b'{"error":{"message":"no","type":"t"}}', status=status)
    assert exchange.is_confirmed == is_call


def test_any_post_to_a_named_upstream_is_an_exchange():
    rules = RunRules(node="n", upstreams=(Upstream(host="llm.example", provider="aivene"),))
    request = structs.replace(REQUEST, host="llm.example", path="/generate-it")
    exchange = opened(request, rules)
    assert (exchange.route.dialect.name, exchange.opened.provider) == ("unknown", "aivene")
    assert exchange.is_confirmed
    without_body = structs.replace(request, method="GET", body=Body(b""))
    assert not opened(without_body, rules).is_confirmed
    assert maybe_opened(structs.replace(request, host="other.example"), rules) is None


SERVED = RunRules(node="n", upstreams=(Upstream(host="llm.example"),))


@for_each("host", ["api.openai.com", "llm.example", "API.Sarvam.ai."])
def test_a_listed_host_is_treated_as_one_that_the_operator_names(host: str) -> None:
    asked = structs.replace(REQUEST, host=host, path="/v9/dream", headers={})
    fetched = structs.replace(asked, method="GET", body=Body(b""))
    socket = structs.replace(fetched, headers={"upgrade": "websocket"})
    for request in (asked, socket):
        exchange = opened(request, SERVED)
        assert exchange.is_confirmed
        assert exchange.opened.dialect == "unknown"
        assert not exchange.routes.is_handshake  # its row opens with its request
    for method in ("GET", "OPTIONS", "PUT", "REPORT"):
        exchange = opened(structs.replace(asked, method=method), SERVED)
        assert not exchange.is_confirmed
        tapped(exchange, b"{}")
        assert exchange.is_confirmed
        chat = structs.replace(asked, method=method, path="/v1/chat/completions")
        assert opened(chat, SERVED).opened.dialect == "openai.chat"
    for kind, is_call in (("application/json", False), ("text/event-stream", True)):
        exchange = opened(fetched, SERVED)
        tapped(exchange, b'data: {"a":1}\n\n', kind)
        assert exchange.is_confirmed is is_call


@for_each(
    "host, origin",
    [
        ("LLM.Example.", "http://llm.example:80"),
        ("API.OpenAI.com.", "http://api.openai.com:80"),
        ("2001:db8::1", "http://[2001:db8::1]:80"),
    ],
)
def test_an_origin_has_one_spelling(host: str, origin: str) -> None:
    """Caps, duplicates and reports compare it."""
    asked = structs.replace(REQUEST, scheme="http", host=host, port=80)
    assert opened(asked, SERVED).opened.origin == origin
    dream = structs.replace(asked, path="/v9/dream")
    assert (maybe_opened(dream, SERVED) is None) is (":" in host)


@for_each("host", ["api.openai.com", "llm.example"])
@for_each(
    "path",
    [
        "/v1/chat/completion%73",
        "/v1%2Fchat%2Fcompletions",
        "//v1//chat//completions",
        "/v1/./x/../chat/completions",
        "/" + "p" * 3_000 + "/v1/chat/completions",
        "/" + "p/" * 2_000 + "v1/chat/completions",
        "/v1/Chat/Completions%20",
        "/v1/chat;a=b/completions?x=/v1/files",
    ],
)
def test_a_spelling_takes_no_call_out_of_the_bill(host: str, path: str) -> None:
    exchange = opened(structs.replace(REQUEST, host=host, path=path), SERVED)
    assert exchange.is_confirmed
    assert exchange.opened.dialect == "openai.chat"


@for_each("host", ["api.openai.com", "llm.example"])
@for_each(
    "path",
    [
        "/v1/files",
        "/v1/messages/count_tokens?beta=true",
        "/v1beta/models/gemini-3.5-flash:countTokens",
        "/v1/traces/ingest",
        "/oauth/token",
        "/v1/vector_stores/vs_1/files",
        "/v1/conversations/conv_1/items",
        "/v1/responses/resp_1/cancel",
        "/v1/batches/batch_1/cancel",
        "/v1/batches",
    ],
)
def test_what_stands_in_the_list_is_no_call(host: str, path: str) -> None:
    assert maybe_opened(structs.replace(REQUEST, host=host, path=path), SERVED) is None


def test_what_only_ends_like_the_list_is_a_call() -> None:
    for path in ("/v1/files/v1/chat/completions", "/v1/messages/count_tokens/x", "/v1/filesystem"):
        assert opened(structs.replace(REQUEST, path=path)).is_confirmed
    assert maybe_opened(structs.replace(REQUEST, host="auth.openai.com", path="/x")) is None
    # Hugging Face's tasks and Fireworks' images are asked of a model by its path.
    for host, path in (
        ("api.openai.com", "/v1/dream#/models"),
        ("router.huggingface.co", "/hf-inference/models/gpt2"),
        ("router.huggingface.co", "/fal-ai/fal-ai/flux/schnell"),
        ("api.fireworks.ai", "/inference/v1/image_generation/accounts/fireworks/models/sdxl"),
    ):
        assert opened(structs.replace(REQUEST, host=host, path=path)).is_confirmed
    named = RunRules(node="n", upstreams=(Upstream(host="auth.example"),))
    assert opened(structs.replace(REQUEST, host="auth.example", path="/x"), named).is_confirmed


@for_each("method", ["PUT", "PATCH", "QUERY", "DELETE", "BREW", "GET"])
@for_each("upgrade", [{}, {"upgrade": "websocket"}], ids=["plain", "upgrade"])
def test_what_it_is_shows_with_its_answer(method: str, upgrade: dict[str, str]) -> None:
    """A3: a method or a header of the client takes no call out of the bill."""
    rules = RunRules(node="n", upstreams=(Upstream(host="llm.example"),))
    request = structs.replace(
        REQUEST, host="llm.example", path="/generate-it", method=method, headers=upgrade
    )
    for kind, is_call in (
        ("application/json", True),
        ("text/event-stream", True),
        ("text/html", False),
    ):
        exchange = opened(request, rules)
        assert not exchange.is_confirmed
        tapped(exchange, b"<p>" if kind == "text/html" else b'data: {"a":1}\n\n', kind)
        assert exchange.is_confirmed is is_call


@for_each("method", ["POST", "PUT", "QUERY"])
@for_each("host", ["api.openai.com", "llm.example", "app.example"])
def test_a_call_with_an_upgrade_header_is_a_call(method: str, host: str) -> None:
    rules = RunRules(node="n", upstreams=(Upstream(host="llm.example"),))
    headers = {**REQUEST.headers, "upgrade": "websocket"}
    exchange = opened(structs.replace(REQUEST, host=host, method=method, headers=headers), rules)
    assert not exchange.routes.is_handshake
    assert exchange.is_confirmed
    assert exchange.route.dialect.name == "openai.chat"
    assert exchange.opened.request_model == "gpt-4o"


MANY = b",".join(b'{"role":"user","content":"%d"}' % number for number in range(50_000))
LONG = b'{"messages":[' + MANY + b'],"model":"m"}'


@for_each(
    "body, encoding",
    [
        pytest.param(LONG, "", id="long"),
        pytest.param(gzip.compress(LONG), "gzip", id="encoded"),
    ],
)
def test_a_large_body_is_read_in_steps_with_the_same_result(body: bytes, encoding: str) -> None:
    headers = {"content-encoding": encoding} if encoding else {}
    request = structs.replace(REQUEST, body=Body(body), headers=headers)
    assert is_read_in_steps(request)
    rules = replace(RULES, keeps_segments=True)
    exchange = maybe_exchange(request, rules, exchange_id="e", source=Source.LIVE)
    assert exchange is not None
    assert len(list(exchange.read_request(request))) > 5
    assert exchange.opened == opened(request, rules).opened
    assert exchange.opened.request_model == "m"
    assert exchange.troubles.text is None


def test_a_request_that_passed_in_part_has_no_digest() -> None:
    cut = structs.replace(REQUEST, body=Body(REQUEST.body.data, is_whole=False))
    (whole, part) = (opened(request) for request in (REQUEST, cut))
    assert whole.opened.request_digest is not None
    assert part.opened.request_digest is None
    assert part.opened.request_model == whole.opened.request_model


def test_the_model_is_found_among_many_members() -> None:
    many = ",".join(f'"{number}":"a text of some length"' for number in range(50_000))
    body = b'{"model":"m",' + many.encode() + b"}"
    exchange = opened(structs.replace(REQUEST, body=Body(body)))
    assert exchange.opened.request_model == "m"


def test_a_query_of_a_megabyte_is_searched_at_its_beginning():
    query = "&".join(["a=b"] * 250_000)
    request = structs.replace(REQUEST, path=f"/v1/chat/completions?{query}")
    began = time.thread_time()
    opened(request)
    assert time.thread_time() - began < 0.1


def test_a_body_of_empty_members_is_not_decoded_to_its_end():
    troubles = Troubles()
    steps = decoded_body_in_steps(Body(gzip.compress(b"") * 100_000), "gzip", troubles)
    assert without_pauses(steps) == NOT_KNOWN
    assert "pieces" in (troubles.text or "")


AGENT = RunRules(node="n", project="search", git_branch="main")


def row_of_agent(**headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return row(structs.replace(REQUEST, headers=named), AGENT)


def test_project_and_branch_of_the_run():
    found = row_of_agent(user_agent="curl/8")
    assert (found.project, found.git_branch, found.agent) == ("search", "main", None)


def test_agent_session_and_parent():
    agent = {"user_agent": "opencode/1.0", "x_session_affinity": "s2"}
    found = row_of_agent(**agent, x_parent_session_id="s1")
    assert (found.agent, found.session_id, found.parent_session_id) == ("opencode", "s2", "s1")
    assert row_of_agent(**agent, x_tokentee_session="nightly").session_id == "nightly"


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


@for_each(
    "method, path, body, answer",
    [pytest.param(*case, id=f"{n}-{case[1]}") for n, case in enumerate(INNOCENT)],
)
def test_what_is_no_llm_call_makes_no_row(method: str, path: str, body: Any, answer: Any) -> None:
    exchange = exchange_of(method, path, body, answer, rules=ANYWHERE)
    assert exchange is None or not exchange.is_confirmed


@for_each(
    "method, path, body, answer",
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


@for_each("keeps_segments", [True, False])
def test_what_bounds_the_cost_is_read_only_if_somebody_asks(keeps_segments: bool) -> None:
    seen: list[tuple[str, Any, bytes]] = []

    def limits_of(dialect: Any, values: dict[str, Any], body: bytes, parts: Any) -> str:
        assert bool(parts) == (keeps_segments and "messages" in values)
        seen.append((dialect.name, values, body))
        return "limits"

    rules = replace(RULES, keeps_segments=keeps_segments)
    assert opened(rules=rules).asked.limits is None
    asking = replace(rules, limits_of=limits_of)
    assert opened(rules=asking).asked.limits == "limits"
    assert seen == [("openai.chat", json.loads(BODY), BODY)]
    # Of a longer body than is parsed nothing bounds the cost.
    long = b'{"model":"m","input":"' + b"x" * 1024 * 1024 + b'"}'
    opened(structs.replace(REQUEST, path="/v1/embeddings", body=Body(long)), asking)
    assert seen[-1] == ("openai.embeddings", {}, long)
