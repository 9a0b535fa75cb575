"""What someone sees: in mitmweb comments with figures, no red mark of our making; in
`tokentee top` what waits, what is answered, and what has ended."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from addon import cli
from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.mitmdump import Mitmdump, free_port
from tests.proxy.pair import ANTHROPIC, OPENAI, exchange, new_tag, pair, post, speak
from tests.proxy.upstream import Answer, End, Request, Upstream
from tests.proxy.wire import asks

pytestmark = pytest.mark.proxy

PASSWORD = "open"


class Web:
    """A mitmweb before an upstream that reports usage only when asked."""

    def __init__(self, upstream: Upstream, proxy: Mitmdump, port: int) -> None:
        self.upstream = upstream
        self.proxy = proxy
        self.port = port

    def get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {PASSWORD}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def commented(self, count: int) -> list[dict[str, Any]]:
        """The flows, once so many have their comment."""

        def are_there() -> bool:
            return sum(bool(flow["comment"]) for flow in self.get("/flows")) >= count

        assert rows.eventually(are_there), self.get("/flows")
        flows: list[dict[str, Any]] = self.get("/flows")
        return flows


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    port = free_port()
    with Upstream(speak(OPENAI)) as upstream:
        options = {
            "tee_hosts": f"127.0.0.1:{upstream.port}=aivene",
            "web_open_browser": "false",
            "web_host": "127.0.0.1",
            "web_port": str(port),
            "web_password": PASSWORD,
        }
        proxy = Mitmdump(tmp_path, upstreams=[upstream.url], tool="mitmweb", options=options)
        with proxy:
            yield Web(upstream, proxy, port)


def test_flows_have_their_figures(web: Web) -> None:
    exchange(web.proxy, OPENAI, new_tag())
    web.upstream.script = speak(ANTHROPIC)
    exchange(web.proxy, ANTHROPIC, new_tag())
    chat, messages = web.commented(2)
    assert chat["comment"] == "in 1 200 (1 024 cached) out 64 · $0.0024"
    assert messages["comment"].startswith("in 1 225 (1 000 cached) out 17")
    for flow in (chat, messages):
        assert "error" not in flow
        assert not flow["modified"]


def test_a_client_that_leaves_when_it_has_all_makes_no_red_mark(web: Web) -> None:
    def held(request: Request) -> Answer:
        pieces = OPENAI.answer(asked=asks(request.body))
        return Answer(pieces=pieces, content_type=OPENAI.content_type, end=End.HELD)

    web.upstream.script = held
    with Http1(web.proxy.address()) as client:
        post(client, OPENAI, new_tag(), asked=None)
        client.receive(until=b"[DONE]")
    (flow,) = web.commented(1)
    assert flow["comment"] == "in 1 200 (1 024 cached) out 64 · $0.0024"
    assert "error" not in flow


def states(proxy: Mitmdump) -> list[str]:
    words = ["top", "--once", "--ledger", f"sqlite:///{proxy.ledger}"]
    done = CliRunner().invoke(cli.application([cli.BY_NAME["top"]]), words, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    words_of_lines = [line.split() for line in done.output.splitlines() if line]
    return [line[-1] for line in words_of_lines if line[-1] in ("waiting", "answering")]


def test_a_request_waits_and_then_is_answered(tmp_path: Path):
    with pair(tmp_path, with_bare=False) as running:
        gate, may_answer = running.upstream.gate(), threading.Event()

        def answer(request: Request) -> Answer:
            assert may_answer.wait(rows.WAIT_SECONDS_MAX)  # its head goes at once
            return replace(speak(OPENAI)(request), gate=gate)

        running.upstream.script = answer
        with Http1(running.tee.address()) as client:
            body = OPENAI.request(asked=None)
            post(client, OPENAI, "x", body=body)
            assert rows.eventually(lambda: states(running.tee) == ["waiting"])
            may_answer.set()
            gate.release()
            assert client.head().status == 200
            assert rows.eventually(lambda: states(running.tee) == ["answering"])
            gate.release(100)
        assert rows.eventually(lambda: states(running.tee) == [])
