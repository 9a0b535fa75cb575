"""The real SDKs of hosted agents through a real mitmdump: what a session used is in the ledger once,
however often it is read, killed or not, and stays so by every command."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledger.store.writing.running_totals import FELL
from tests.addon.recordings.test_hosted_agents import (
    AGENTS,
    BARE,
    EARLY,
    EVENTS,
    FETCH,
    LIST,
    NEW,
    OWN,
    PATH,
    RIGHT,
    SESSION,
    TURNS,
    rows,
    session,
    sums,
    total,
    unread,
)
from tests.app import APP
from tests.clients import playing
from tests.clients.matrix import PROGRAMS
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.rows import eventually, exchanges
from tests.proxy.test_caps import cap, capped
from tests.proxy.upstream import Answer, Request, Upstream, document

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PROGRAM = str(PROGRAMS / "hosted_agents_python.py")
SDKS = ("anthropic==2.14.0", "openai==3.57.0")
STEPS = ("create", "send", "fetch", "stream", "fetch", "list", "stream", "fetch", "archive")


class Session:
    """A hosted agent's session; its first fetch comes while it runs."""

    def __init__(self) -> None:
        self.fetched = 0
        self.later = FETCH[2]

    def __call__(self, request: Request) -> Answer:
        path = request.target.partition("?")[0]
        if path.endswith("/events/stream"):
            return events(BARE[2])
        if path.startswith(AGENTS):
            rest = path.removeprefix(f"{AGENTS}/as_1")
            return events(EVENTS) if rest == "/events" else of({"": OWN, "/turns": PAGE}[rest])
        if request.method == "POST" and path != f"{PATH}/archive":
            return of(NEW[2] if path == "/v1/sessions" else {"data": []})
        if path == f"{PATH}/events":
            return of(LIST[2])
        self.fetched += path == PATH
        return of(EARLY[2] if self.fetched == 1 else self.later)


PAGE = {"object": "list", "data": TURNS, "has_more": False}


def of(answer: object) -> Answer:
    return document(json.dumps(answer).encode())


def events(answer: list[dict[str, object]]) -> Answer:
    blocks = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in answer)
    return Answer(pieces=tuple(block.encode() for block in blocks))


def play(kind: str, url: str, *steps: str) -> str:
    python = str(playing.installed(SDKS, is_node=False) / "bin" / "python")
    words = [python, PROGRAM, kind, url, *steps]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(Session()) as made:
        yield made


def proxy_of(upstream: Upstream, folder: Path, provider: str = "anthropic") -> Mitmdump:
    options = {
        "tee_hosts": f"127.0.0.1:{upstream.port}={provider}",
        "tee_capture": str(folder / "captures"),
    }
    return Mitmdump(folder, upstreams=[upstream.url], options=options)


def at(proxy: Mitmdump) -> str:
    return "http://{}:{}".format(*proxy.address())


def check_session(ledger: Path) -> None:
    assert sums(ledger) == RIGHT
    assert unread(ledger)[0] == 0
    found = rows(ledger)
    requests = [row for row in found if row["operation"] == "agent_request"]
    assert [row["response_id"] for row in requests] == ["sevt_1", "sevt_2"]
    assert [(row["input_tokens"], row["cost_state"]) for row in requests] == [
        (60, "priced"),
        (70, "priced"),
    ]
    totals = [row for row in found if row["operation"] == "agent_session"]
    assert all(row["input_tokens"] == 0 for row in totals)
    orders = [row for row in found if row["operation"] == "agent_call"]
    assert len(orders) == len(found) - len(requests) - len(totals) == 2
    assert {(row["session_id"], row["finish_reason"], row["usage_source"]) for row in orders} == {
        (SESSION, "in_progress", "none")
    }


def check_commands(ledger: Path, folder: Path) -> None:
    """No command changes a figure, and another ledger gets the same."""
    before, other = sums(ledger), folder / "other.db"
    costs = {row["id"]: row["cost_picousd"] for row in rows(ledger)}
    captures = str(folder / "captures")
    for words in (
        ["verify", captures],
        ["rebuild", captures],
        ["reprice"],
        ["sync", f"sqlite:///{ledger}", f"sqlite:///{other}"],
        ["sync", f"sqlite:///{ledger}", f"sqlite:///{other}"],
        ["verify"],
    ):
        done = CliRunner().invoke(APP, words, env={"TOKENTEE_LEDGER": f"sqlite:///{ledger}"})
        assert done.exit_code == 0, (words, done.output)
        for one in (ledger, other) if other.exists() else (ledger,):
            assert sums(one) == before, words
            assert {row["id"]: row["cost_picousd"] for row in rows(one)} == costs, words


def test_a_session_is_booked_once(upstream: Upstream, tmp_path: Path) -> None:
    direct = play("anthropic", upstream.url, *STEPS)
    upstream.script = Session()
    with proxy_of(upstream, tmp_path) as proxy:
        assert play("anthropic", at(proxy), *STEPS) == direct
        check_session(proxy.ledger)
        play("anthropic", at(proxy), *STEPS[2:])
        check_session(proxy.ledger)
    check_commands(proxy.ledger, tmp_path)
    totals = [row for row in rows(proxy.ledger) if row["operation"] == "agent_session"]
    assert sum(row["cost_picousd"] for row in totals) == 1500 * 22_222  # runtime alone


def test_a_kill_between_two_fetches_loses_nothing(upstream: Upstream, tmp_path: Path) -> None:
    for step in STEPS:
        proxy = proxy_of(upstream, tmp_path).start()
        try:
            play("anthropic", at(proxy), step)
        finally:
            proxy.kill()
    check_session(proxy.ledger)
    check_commands(proxy.ledger, tmp_path)


def test_what_is_never_read_is_seen(upstream: Upstream, tmp_path: Path) -> None:
    with proxy_of(upstream, tmp_path) as proxy:
        play("anthropic", at(proxy), "send")
        upstream.script = lambda _: replace(of({"type": "error"}), status=401)
        for step in ("create", "send", "fetch", "list", "archive"):
            with pytest.raises(AssertionError, match="401"):
                play("anthropic", at(proxy), step)
    found = rows(proxy.ledger)
    assert [row["operation"] for row in found] == ["agent_call"] * 6
    assert [row["http_status"] for row in found] == [200] + [401] * 5
    assert unread(proxy.ledger) == (1, 6)
    check_commands(proxy.ledger, tmp_path)


def test_an_order_under_way_is_not_lost_with_its_process(
    upstream: Upstream, tmp_path: Path
) -> None:
    proxy = proxy_of(upstream, tmp_path).start()

    def killing(_: Request) -> Answer:
        assert eventually(lambda: bool(exchanges(proxy.ledger)))
        proxy.kill()
        return of({"data": []})

    upstream.script = killing
    with pytest.raises(AssertionError, match=r"Connection|Disconnect|disconnect"):
        play("anthropic", at(proxy), "send")
    upstream.script = Session()
    with proxy_of(upstream, tmp_path):
        pass
    assert [(row["operation"], row["outcome"]) for row in rows(proxy.ledger)] == [
        ("agent_call", "lost")
    ]


def test_a_total_that_falls_or_is_broken_is_said(upstream: Upstream, tmp_path: Path) -> None:
    script = upstream.script = Session()
    with proxy_of(upstream, tmp_path) as proxy:
        play("anthropic", at(proxy), "stream", "fetch", "fetch")
        script.later = session(total(50, 10, 1.5, 1, 30))
        play("anthropic", at(proxy), "fetch")
        fallen = rows(proxy.ledger)[-1]
        assert fallen["input_tokens"] is None
        assert json.loads(fallen["remarks"]) == [FELL.format("input_tokens")]
        script.later = session({**total(100, 10, 1.5, 1, 30), "output_tokens": -7})
        play("anthropic", at(proxy), "fetch")
        broken = rows(proxy.ledger)[-1]
        assert broken["output_tokens"] is None
        assert json.loads(broken["remarks"]), broken
    assert sums(proxy.ledger) == RIGHT


def test_a_cap_refuses_what_starts_an_agent(upstream: Upstream, tmp_path: Path) -> None:
    with capped(upstream.url, tmp_path, cap(usd=1), provider="anthropic") as proxy:
        play("anthropic", at(proxy), "fetch", "stream", "list")
        for step in ("create", "send"):
            with pytest.raises(AssertionError, match="refused by the cap"):
                play("anthropic", at(proxy), step)
    operations = [(row["operation"], row["outcome"]) for row in rows(proxy.ledger)]
    assert operations.count(("agent_call", "refused")) == 2


def test_a_session_of_openai_is_booked_once(upstream: Upstream, tmp_path: Path) -> None:
    steps = ("fetch", "stream", "turns", "fetch", "stream", "fetch")
    direct = play("openai", upstream.url, *steps)
    with proxy_of(upstream, tmp_path, "openai") as proxy:
        assert play("openai", at(proxy), *steps) == direct
    found = sums(proxy.ledger)
    assert (found["input"], found["output"]) == (500, 50)
    requests = [row for row in rows(proxy.ledger) if row["operation"] == "agent_request"]
    assert {row["response_id"]: row["input_tokens"] for row in requests} == {
        "turn_1": 200,
        "turn_2": 100,
    }
    check_commands(proxy.ledger, tmp_path)
