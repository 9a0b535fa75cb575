"""Health, metrics, spans and JSON lines of a real mitmdump, with a real answer through it."""

import http.client
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.addon.parts.telemetry.test_metrics import receiving, spans
from tests.proxy import rows
from tests.proxy.mitmdump import Mitmdump, free_port
from tests.proxy.upstream import Answer, Upstream

pytestmark = pytest.mark.proxy

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4.1",
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }
).encode()


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def ask(address: tuple[str, int]) -> bytes:
    body = json.dumps({"model": "gpt-4.1", "messages": [{"role": "user", "content": "x"}]})
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer sk-1"})
        return connection.getresponse().read()


def test_everything_at_once(tmp_path: Path) -> None:
    port = free_port()
    options = {
        "tee_metrics": str(port),
        "tee_log_format": "json",
        "tee_log": "exchanges",
        "tee_hosts": "127.0.0.1=openai",
    }
    with (
        receiving() as receiver,
        Upstream(lambda _: Answer(pieces=(ANSWER,), content_type="application/json")) as upstream,
        Mitmdump(
            tmp_path, upstreams=[upstream.url], options={**options, "tee_otlp": receiver.url}
        ) as proxy,
    ):
        assert get(port, "/readyz")[0] == 200
        assert ask(proxy.address()) == ANSWER
        wanted = (
            'tokentee_tokens_total{model="gpt-4.1",provider="openai",type="uncached_input"} 12.0'
        )
        assert rows.eventually(lambda: wanted in get(port, "/metrics")[1])
        counted = 'tokentee_requests_total{model="gpt-4.1",outcome="complete"'
        assert counted in get(port, "/metrics")[1]
    (span,) = spans(receiver)
    assert span.name == "chat gpt-4.1"
    lines = [json.loads(line) for line in proxy.log.splitlines() if line.startswith("{")]
    assert any("gpt-4.1" in line["message"] and "12" in line["message"] for line in lines)
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")


def test_the_password_of_a_ledger_that_is_down_is_nowhere(tmp_path: Path) -> None:
    """Neither in the log nor in what `/readyz` and `/metrics` say."""
    port = free_port()
    options = {
        "tee_metrics": str(port),
        "ledger_url": "postgresql+psycopg://u:hunter2@127.0.0.1:9/d?password=hunter2",
    }
    data = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with Mitmdump(
        tmp_path, upstreams=["http://127.0.0.1:9"], options=options, environment=data
    ) as proxy:
        assert proxy.wait_for_log("cannot ship to the shared ledger")
        said = [get(port, path)[1] for path in ("/readyz", "/metrics", "/healthz")]
    assert "u:***@127.0.0.1" in proxy.log
    for text in (proxy.log, *said):
        assert "hunter2" not in text
