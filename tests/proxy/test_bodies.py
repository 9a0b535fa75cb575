"""Who saves or changes plain answers with mitmproxy's own means can still do so beside us."""

import gzip
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.io import FlowReader

from tests.proxy.mitmdump import SCRIPTS, Mitmdump
from tests.proxy.pair import OPENAI, Pair, exchange, new_tag, pair
from tests.proxy.upstream import Answer, Framing

pytestmark = pytest.mark.proxy

DOCUMENT = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,'
    b'"message":{"content":"from upstream"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}'
)
PLAIN = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
JSON = "application/json"


def answered(running: Pair, answer: Answer) -> bytes:
    """The body that a client gets; its row is on disk when the body has ended."""
    running.upstream.script = lambda _: answer
    tag = new_tag()
    received = exchange(running.tee, OPENAI, tag, body=PLAIN)
    row = running.row(tag)
    assert (row["outcome"], row["input_tokens"], row["output_tokens"]) == ("complete", 9, 3)
    return received.body


def test_a_flow_file_has_plain_answers_as_upstream_sent_them(tmp_path: Path) -> None:
    """With `-w`, as without us; and a body over `stream_large_bodies` still streams and counts."""
    saved = tmp_path / "flows.mitm"
    packed = gzip.compress(DOCUMENT)
    large = DOCUMENT[:-1] + b',"x":"' + b"a" * 40_000 + b'"}'
    with pair(
        tmp_path,
        with_bare=False,
        options={"save_stream_file": str(saved), "stream_large_bodies": "30k"},
    ) as running:
        by_length = Answer(pieces=(DOCUMENT,), content_type=JSON, framing=Framing.LENGTH)
        assert answered(running, by_length) == DOCUMENT
        zipped = Answer(
            pieces=(packed[:20], packed[20:]),
            content_type=JSON,
            headers=(("content-encoding", "gzip"),),
        )
        assert answered(running, zipped) == packed
        beyond = Answer(pieces=(large,), content_type=JSON, framing=Framing.LENGTH)
        assert answered(running, beyond) == large
    with saved.open("rb") as file:
        flows = [flow for flow in FlowReader(file).stream() if isinstance(flow, http.HTTPFlow)]
    bodies = [flow.response.raw_content for flow in flows if flow.response is not None]
    assert bodies == [DOCUMENT, packed, None]


def test_another_addon_can_change_a_plain_answer(tmp_path: Path) -> None:
    script = SCRIPTS / "changer.py"
    by_length = Answer(pieces=(DOCUMENT,), content_type=JSON, framing=Framing.LENGTH)
    changed = DOCUMENT.replace(b"upstream", b"changed!")
    with pair(tmp_path, with_bare=False, behind=(script,)) as running:
        assert answered(running, by_length) == changed
        running.upstream.script = lambda _: by_length
        with Mitmdump(tmp_path / "stock", upstreams=[running.upstream.url], script=script) as stock:
            assert exchange(stock, OPENAI, new_tag(), body=PLAIN).body == changed
