"""Digests that tell one billed response from another."""

import hashlib
from collections.abc import Generator
from typing import Any

from ledger.model.duplicates import DIGEST_STEP_BYTES, content_digest, request_digest_in_steps
from tests.named import for_each

FACTS: dict[str, Any] = {
    "response_model": "gpt-5",
    "created": 1_750_000_000,
    "finish_reason": "stop",
    "usage_json": '{"total_tokens":3}',
}


@for_each("name", FACTS)
def test_the_digest_covers_every_part(name):
    other = "x" if FACTS[name] != "x" else "y"
    digests = {
        content_digest(**FACTS),
        content_digest(**{**FACTS, name: other}),
        content_digest(**{**FACTS, name: None}),
        content_digest(**{**FACTS, name: ""}),
    }
    assert len(digests) == 4


def test_parts_do_not_run_into_each_other():
    one = content_digest(response_model="ab", created="c", finish_reason=None, usage_json=None)
    other = content_digest(response_model="a", created="bc", finish_reason=None, usage_json=None)
    assert one != other


def test_a_model_and_a_finish_reason_alone_say_too_little():
    assert content_digest(**{**FACTS, "created": None, "usage_json": None}) is None
    assert content_digest(**{**FACTS, "created": None}) is not None
    assert content_digest(**{**FACTS, "usage_json": None}) is not None


def test_a_lone_surrogate_is_digested():
    assert content_digest(**{**FACTS, "finish_reason": "\ud800"}) is not None


def test_the_digest_of_a_request():
    def taken(body: bytes) -> Generator[None, None, None]:
        found.append((yield from request_digest_in_steps(body)))

    found: list[str] = []
    for body, pauses in ((b"", 0), (b"{}", 0), (b"ab" * DIGEST_STEP_BYTES, 1)):
        assert len(list(taken(body))) == pauses
        assert found.pop() == hashlib.sha256(body).hexdigest()[:32]


def test_nulls_and_the_order_of_keys_do_not_count_at_any_depth():
    one = '{"a":[{"x":1,"y":null},null,[2]],"b":{"c":null,"d":4}}'
    other = '{"b":{"d":4},"a":[{"x":1},null,[2]]}'
    more = '{"b":{"d":5},"a":[{"x":1},null,[2]]}'
    digests = [content_digest(**{**FACTS, "usage_json": each}) for each in (one, other, more)]
    assert digests[0] == digests[1] != digests[2]
    assert content_digest(**{**FACTS, "usage_json": "[null,3]"}) is not None
    assert content_digest(**{**FACTS, "usage_json": "3"}) is not None
    assert content_digest(**{**FACTS, "usage_json": '"null"'}) is not None
