"""A request becomes the exchange that is to be metered, or none."""

import gzip
import time
from collections.abc import Generator
from dataclasses import replace

import pytest
from msgspec import structs

from addon.metering.exchange import Readable, decoded_body
from addon.metering.opening import RunRules, Upstream, is_read_in_steps, readable_in_steps
from addon.metering.requests.messages import NOT_KNOWN, Body, Request
from addon.metering.troubles import Troubles
from tests.addon.metering.opened import BODY, REQUEST, RULES, maybe_opened, opened


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


def test_other_traffic_is_no_exchange():
    other = structs.replace(REQUEST, host="intranet.example", path="/index.html")
    assert maybe_opened(other) is None


@pytest.mark.parametrize("address", [None, "10.0.0.7"])
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
    assert exchange.request_body() == Body(BODY)


def test_a_broken_encoding_is_noted():
    troubles = Troubles()
    headers = {**REQUEST.headers, "content-encoding": "gzip"}
    opened(structs.replace(REQUEST, headers=headers, body=Body(b"no gzip")), troubles=troubles)
    assert (troubles.text or "").startswith("request: ")


def test_a_websocket_may_name_its_model_in_the_url():
    request = structs.replace(
        REQUEST,
        method="GET",
        path="/v1/realtime?model=" + "m" * 4_000,
        headers={"upgrade": "WebSocket"},
        body=Body(b""),
    )
    exchange = opened(request)
    assert exchange.is_handshake
    assert exchange.opened.request_model == "m" * 256
    assert maybe_opened(structs.replace(request, path="/chat")) is None


def test_any_post_to_a_named_upstream_is_an_exchange():
    rules = RunRules(node="n", upstreams=(Upstream(host="llm.example", provider="aivene"),))
    request = structs.replace(REQUEST, host="llm.example", path="/generate-it")
    exchange = opened(request, rules)
    assert (exchange.route.dialect.name, exchange.opened.provider) == ("unknown", "aivene")
    assert exchange.is_confirmed
    assert maybe_opened(structs.replace(request, method="GET"), rules) is None
    assert maybe_opened(structs.replace(request, host="other.example"), rules) is None


MANY = b",".join(b'{"role":"user","content":"%d"}' % number for number in range(50_000))
LONG = b'{"messages":[' + MANY + b'],"model":"m"}'


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(LONG, "", id="long"),
        pytest.param(gzip.compress(LONG), "gzip", id="encoded"),
    ],
)
def test_a_large_body_is_read_in_steps_with_the_same_result(body: bytes, encoding: str) -> None:
    headers = {"content-encoding": encoding} if encoding else {}
    request = structs.replace(REQUEST, body=Body(body), headers=headers)
    assert is_read_in_steps(request, RULES)
    troubles = Troubles()
    found: list[Readable] = []

    def run() -> Generator[None, None, None]:
        found.append((yield from readable_in_steps(request, troubles, RULES)))

    assert len(list(run())) > 20
    in_steps = opened(request, troubles=troubles, readable=found[0])
    at_once = opened(request, troubles=troubles)
    assert in_steps.opened == at_once.opened
    assert in_steps.opened.request_model == "m"
    assert troubles.text is None


def test_a_request_that_passed_in_part_has_no_digest() -> None:
    cut = structs.replace(REQUEST, body=Body(REQUEST.body.data, is_whole=False))
    (whole, part) = (opened(request) for request in (REQUEST, cut))
    assert whole.opened.request_digest is not None
    assert part.opened.request_digest is None
    assert part.opened.request_model == whole.opened.request_model


def test_what_was_not_read_of_a_request_is_noted() -> None:
    many = ",".join(f'"{number}":"a text of some length"' for number in range(50_000))
    body = b'{"model":"m",' + many.encode() + b"}"
    troubles = Troubles()
    exchange = opened(structs.replace(REQUEST, body=Body(body)), troubles=troubles)
    assert exchange.opened.request_model == "m"
    assert "a request with too many values" in (troubles.text or "")


def test_what_is_no_call_is_not_read_in_steps():
    request = structs.replace(REQUEST, path="/upload", body=Body(LONG))
    assert not is_read_in_steps(request, RULES)


def test_a_query_of_a_megabyte_is_searched_at_its_beginning():
    query = "&".join(["a=b"] * 250_000)
    request = structs.replace(REQUEST, path=f"/v1/chat/completions?{query}")
    began = time.thread_time()
    opened(request)
    assert time.thread_time() - began < 0.1


def test_a_body_of_empty_members_is_not_decoded_to_its_end():
    troubles = Troubles()
    assert decoded_body(Body(gzip.compress(b"") * 100_000), "gzip", troubles) == NOT_KNOWN
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
