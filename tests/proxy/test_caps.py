"""Caps of a real mitmdump: what passes, and what stays after a kill. `test_sdks` has what SDKs see."""

import asyncio
import itertools
import json
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from ledger.store import db
from tests.clients.answers import answer_to
from tests.proxy import rows
from tests.proxy.client import BrokenHttpError, Ending, Http2
from tests.proxy.mitmdump import DidNotStartError, Mitmdump, free_port
from tests.proxy.pair import connect as connect_to
from tests.proxy.relaying import Line
from tests.proxy.test_run import run
from tests.proxy.test_websocket import CREATE, answer_of
from tests.proxy.upstream import Answer, Framing, Request, Upstream, document
from tests.proxy.workers import Workers

pytestmark = pytest.mark.proxy

NUMBERS = itertools.count()
"""Of answers: two with one id would be one."""
MESSAGES: Any = [{"role": "user", "content": "Hi"}]


def script(request: Request) -> Answer:
    body = json.loads(request.body)
    answer = answer_to(request.target.partition("?")[0], body, f"caps-{next(NUMBERS)}", lambda: 1)
    assert answer is not None, request.target
    is_stream = "event-stream" in answer.content_type
    return Answer(
        pieces=answer.pieces,
        content_type=answer.content_type,
        framing=Framing.CHUNKED if is_stream else Framing.LENGTH,
    )


@contextmanager
def capped(
    upstream: str, folder: Path, caps: str, provider: str = "openai", **options: str
) -> Iterator[Mitmdump]:
    """A proxy under these caps."""
    file = folder / "budgets.toml"
    file.write_text(caps)
    port = upstream.rpartition(":")[2]
    with Mitmdump(
        folder,
        upstreams=[upstream],
        options={"tee_hosts": f"127.0.0.1:{port}={provider}", **options},
        environment={"TOKENTEE_BUDGETS": str(file)},
    ) as proxy:
        yield proxy


def cap(name: str = "daily", **more: Any) -> str:
    facts = {"name": name, "period": "day", "wait": 0, **more}
    return "[[cap]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())


def ask(proxy: Mitmdump, **more: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    """A chat request with 16 tokens out: at most $0.0055 of gpt-4o."""
    host, port = proxy.address()
    body = {"model": "gpt-4o", "max_tokens": 16, "messages": MESSAGES, **more}
    with httpx.Client(trust_env=False) as client:
        found = client.post(
            f"http://{host}:{port}/v1/chat/completions",
            json=body,
            headers={"authorization": "Bearer sk-test-0123456789"},
            timeout=100,
        )
    return found.status_code, found.json(), dict(found.headers)


# gpt-4o: $2.50 and $10 a million. An answer of 1001 tokens in and 11 out costs $0.0026125.


def test_a_cap_stops_and_says_so_and_stays_after_a_kill(tmp_path):
    with Upstream(script) as upstream:
        with capped(upstream.url, tmp_path, cap(usd=0.008)) as proxy:
            assert ask(proxy)[0] == 200
            status, body, headers = ask(proxy)
            assert status == 402
            assert body["error"]["type"] == "insufficient_quota"
            assert "$0.0026 of $0.0080 (usd) spent" in body["error"]["message"]
            assert (headers["x-should-retry"], headers["x-tokentee-cap"]) == ("false", "daily")
            assert len(upstream.requests) == 1
            assert rows.eventually(lambda: len(rows.exchanges(proxy.ledger)) == 2)
            proxy.stop(signal.SIGKILL)
        with capped(upstream.url, tmp_path, cap(usd=0.008)) as proxy:
            assert ask(proxy)[0] == 402
        assert len(upstream.requests) == 1
    found = rows.exchanges(tmp_path / "ledger.db")
    assert [row["outcome"] for row in found] == ["complete", "refused", "refused"]
    refused = found[1]
    assert (refused["http_status"], refused["error_type"]) == (402, "tokentee_cap")
    assert (refused["error_code"], refused["input_tokens"]) == ("daily", None)
    assert found[0]["hold_picousd"] > 2_612_500_000
    assert refused["hold_picousd"] is None


def test_what_has_no_route_is_not_bounded_and_what_is_no_call_asks_nothing(tmp_path):
    """Whatever its path, method or spelling."""
    answer = document(b'{"usage":{"prompt_tokens":3}}')
    asked = [
        *(("POST", "/v9/dream", 402), ("PUT", "/v9/dream", 402), ("GET", "/v9/dream?x", 402)),
        *(("OPTIONS", "/v1/chat/completion%73", 402), ("POST", "//v1/files", 200)),
        *(("POST", "/v1/batches", 200), ("PATCH", "/v1/assistants/a", 200)),
    ]
    with (
        Upstream(lambda _: answer) as upstream,
        capped(upstream.url, tmp_path, cap(usd=1)) as proxy,
        httpx.Client(trust_env=False, base_url="http://{}:{}".format(*proxy.address())) as client,
    ):
        for method, path, status in asked:
            found = client.request(method, path, json={"model": "no-price"})
            assert (method, path, found.status_code) == (method, path, status)
        assert client.get("/v9/dream").status_code == 200  # it asks for nothing
        assert len(upstream.requests) == 4
    booked = rows.exchanges(tmp_path / "ledger.db")
    assert [row["outcome"] for row in booked] == ["refused"] * 4


def test_what_starts_a_hosted_agent_is_not_bounded(tmp_path):
    with (
        Upstream(lambda _: document(b"{}")) as upstream,
        capped(upstream.url, tmp_path, cap(usd=1), provider="anthropic") as proxy,
        httpx.Client(trust_env=False, base_url="http://{}:{}".format(*proxy.address())) as client,
    ):
        for path in ("/v1/sessions", "/v1/sessions/s/events"):
            assert client.post(path, json={}).status_code == 402
            assert client.get(path).status_code == 200
    booked = rows.exchanges(tmp_path / "ledger.db")
    assert [(row["operation"], row["outcome"]) for row in booked] == [("agent_call", "refused")] * 2


BOTH_WAYS = {
    "/model/amazon.nova-sonic-v1:0/invoke-with-bidirectional-stream": (
        *("application/vnd.amazon.eventstream", 402, b"refused by the cap daily"),
    ),
    "/xai_api.Dream/Both": ("application/grpc", 200, b""),
    "/xai_api.Dream/Web": ("application/grpc-web-text", 200, b""),
    "/xai_api.Chat/GetCompletion": ("application/grpc", 200, b""),
}
FIRST = b"\0\0\0\0\x06\x12\x04none"
"""A request of xAI for a model without a price, as gRPC frames it."""


@pytest.mark.parametrize("wraps", ["yes", "no"])
def test_what_goes_both_ways_is_decided_at_its_headers(wraps, tmp_path):
    """Its client keeps its side open, and sends on."""
    with (
        Upstream(script) as upstream,
        capped(upstream.url, tmp_path, cap(usd=1), "aws.bedrock", tee_wrap=wraps) as proxy,
        connect_to(proxy, is_h2=True) as client,
    ):
        assert isinstance(client, Http2)
        for path, (kind, status, text) in BOTH_WAYS.items():
            client.send("POST", path, [("content-type", kind)], chunks=[FIRST[:7]], ends=False)
            if wraps == "no":
                with pytest.raises(BrokenHttpError, match="StreamReset"):
                    client.head()
                continue
            client.go_on(FIRST[7:])
            answer = client.head()
            client.go_on(b"two")
            while client.more(answer):
                pass
            assert (answer.status, answer.ending) == (status, Ending.TERMINATED)
            assert text in b"".join(answer.pieces)
            assert ("grpc-status" in dict(answer.headers)) is (status == 200)
            client.leave(rst=True)
        assert upstream.requests == []
    found = [
        (row["path"], row["outcome"], row["http_status"]) for row in rows.exchanges(proxy.ledger)
    ]
    assert found == [(path, "refused", each[1]) for path, each in BOTH_WAYS.items()]


@pytest.mark.parametrize("is_h2", [False, True])
def test_a_call_that_comes_at_once_is_refused_as_quietly(is_h2, tmp_path):
    with (
        Upstream(script) as upstream,
        capped(upstream.url, tmp_path, cap(usd=1), "x_ai") as proxy,
        connect_to(proxy, is_h2=is_h2) as client,
    ):
        for path, (kind, status, _) in BOTH_WAYS.items():
            for _each in range(2):  # on one connection
                client.send("POST", path, [("content-type", kind)], FIRST)
                answer = client.receive()
                assert (answer.status, answer.ending) == (status, Ending.TERMINATED)
        assert upstream.requests == []
    assert not proxy.has_logged("Traceback"), proxy.log


def test_bytes_are_those_without_a_cap(tmp_path, monkeypatch):
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    seen = []
    for folder, limit in (("with", cap(usd=5)), ("without", "")):
        monkeypatch.setattr("tests.proxy.test_caps.NUMBERS", itertools.count())
        with (
            Upstream(script) as upstream,
            capped(upstream.url, tmp_path / folder, limit) as proxy,
        ):
            answer = ask(proxy)
            (request,) = upstream.requests
            seen.append((answer[:2], request.body))
    assert seen[0] == seen[1]


def test_a_request_without_a_bound_is_refused_or_passed_as_the_operator_says(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Upstream(script) as upstream:
        with capped(upstream.url, tmp_path / "a", cap(usd=5)) as proxy:
            status, body, _ = ask(proxy, model="nobody-s-model")
            assert status == 402
            assert "its cost has no bound" in body["error"]["message"]
        with capped(upstream.url, tmp_path / "b", cap(usd=5, unpriced="pass")) as proxy:
            assert ask(proxy, model="nobody-s-model")[0] == 200
    (row,) = rows.exchanges(tmp_path / "b" / "ledger.db")
    assert "cap daily: not bounded" in row["remarks"]


def test_requests_at_once_wait_for_one_another(tmp_path):
    with (
        Upstream(script) as upstream,
        capped(upstream.url, tmp_path, cap(usd=0.06, wait=30)) as proxy,
    ):
        found: list[int] = []
        threads = [
            # Its limit is a hundred times what it uses: one holds $0.0215.
            threading.Thread(target=lambda: found.append(ask(proxy, max_tokens=1_600)[0]))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [200] * 12


@contextmanager
def responses_upstream(asked: list[str]) -> Iterator[str]:
    def noted(connection: ServerConnection) -> None:
        for message in connection:
            asked.append(str(message))
            for piece in answer_of(1):
                connection.send(piece)

    with serve(noted, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def test_over_a_web_socket_each_response_asks(tmp_path):
    asked: list[str] = []
    bounded = json.dumps({**json.loads(CREATE), "max_output_tokens": 100})
    with (
        responses_upstream(asked) as upstream,
        capped(upstream, tmp_path, cap(requests=1)) as proxy,
    ):
        host, port = proxy.address()
        with connect(f"ws://{host}:{port}/v1/responses") as client:
            client.send(bounded)
            assert [json.loads(client.recv())["type"] for _ in range(5)][-1] == "response.completed"
            client.send(bounded)
            error = json.loads(client.recv())
            assert error["type"] == "error"
            assert error["error"]["code"] == "tokentee_cap"
            assert "refused by the cap daily" in error["error"]["message"]
        assert len(asked) == 1
        assert rows.eventually(lambda: len(rows.exchanges(proxy.ledger)) == 2)
        outcomes = [row["outcome"] for row in rows.exchanges(proxy.ledger)]
    assert outcomes == ["complete", "refused"]


def test_the_file_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "budgets.toml"
    with Upstream(script) as upstream, capped(upstream.url, tmp_path, "") as proxy:
        assert ask(proxy)[0] == 200
        file.write_text(cap(requests=1))
        assert rows.eventually(lambda: ask(proxy)[0] == 402)
        file.write_text("[[cap]]\nname = 'x'\nusd = -5\nperiod = 'day'\n")
        assert rows.eventually(lambda: "the caps stay as they were" in proxy.log)
        assert ask(proxy)[0] == 402
        file.write_text(cap(requests=1_000))
        assert rows.eventually(lambda: ask(proxy)[0] == 200)
        file.write_text("")
        assert rows.eventually(lambda: "0 caps are in force" in proxy.log)


@pytest.mark.parametrize(
    ("caps", "line"),
    [
        (cap(usd=-1), "usd: -1 is not an amount"),
        (cap(usd=0), "usd: 0 is not an amount"),
        (cap(usd=10**9), "is not an amount of up to"),
        (cap(usd="many"), "usd: not a"),
        (cap(tokens="many"), "tokens: 'many' is not a number such as"),
        (cap(usd=1, period="year"), "period"),
        (cap(usd=1, colour="red"), "colour: unknown"),
        (cap(usd=1, timezone="Europe/Berlim"), "not a time zone"),
        (cap(usd=1) + cap(usd=2), "'daily' is the name of several caps"),
        (cap(usd=1, person="Ada"), "there is no names file"),
        (cap(), "give one of usd"),
    ],
)
def test_a_wrong_cap_starts_nothing(tmp_path, caps, line):
    with pytest.raises(DidNotStartError) as stopped, capped("http://127.0.0.1:9", tmp_path, caps):
        pass
    assert line in str(stopped.value)
    assert "Traceback" not in str(stopped.value)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def line(request: pytest.FixtureRequest) -> Iterator[tuple[Line, str] | None]:
    """The line to a PostgreSQL, and its URL; None: the ledger is a file."""
    if request.param == "sqlite":
        yield None
        return
    server = sa.make_url(request.getfixturevalue("new_database")())
    db.ensure(server).dispose()
    folder = server.query["host"]
    assert isinstance(folder, str)
    made = Line(f"{folder}/.s.PGSQL.5432")
    made.mend()
    url = server.set(host="127.0.0.1", port=made.port, query={})
    yield made, url.render_as_string(hide_password=False)
    made.cut()


def test_a_cap_holds_over_processes_of_which_one_is_killed(tmp_path, line):
    """Four processes, twenty requests allowed. One is killed with two under way; then forty come at
    once to the others, while the database is away for a moment."""
    (tmp_path / "budgets.toml").write_text(cap(requests=20, wait=30))
    go_on = threading.Event()

    def slow(request: Request) -> Any:
        if b"wait" not in request.body:
            return script(request)

        async def answer(*_: Any) -> None:
            await asyncio.to_thread(go_on.wait, 60)

        return answer

    def proxy(number: int) -> Mitmdump:
        (tmp_path / str(number)).mkdir()
        url = f"sqlite:///{tmp_path}/ledger.db" if line is None else line[1]
        return Mitmdump(
            tmp_path / str(number),
            upstreams=[upstream.url],
            options={"tee_hosts": f"127.0.0.1:{upstream.port}=openai", "ledger_url": url},
            environment={
                "TOKENTEE_BUDGETS": str(tmp_path / "budgets.toml"),
                "XDG_DATA_HOME": str(tmp_path / "data"),
            },
        )

    def status_of(each: Mitmdump, text: str = "Hi") -> int:
        try:
            return ask(each, messages=[{"role": "user", "content": text}])[0]
        except httpx.HTTPError:
            return 0

    with ExitStack() as running, Upstream(slow) as upstream, ThreadPoolExecutor(44) as pool:
        running.callback(go_on.set)
        proxies = [running.enter_context(proxy(number)) for number in range(4)]
        *others, killed = proxies
        for _ in range(2):
            pool.submit(status_of, killed, "wait")
        assert rows.eventually(lambda: len(upstream.requests) == 2)
        files = [*tmp_path.glob("ledger.db"), *tmp_path.glob("data/**/spool/*.sqlite3")]
        assert rows.eventually(lambda: len(rows.exchanges(files[0])) == 2)
        killed.kill()
        asked = [pool.submit(status_of, others[number % 3]) for number in range(40)]
        if line is not None:
            line[0].cut()
            threading.Event().wait(1)
            line[0].mend()
        counts = Counter(each.result() for each in asked)
        # Who could not ask the database is refused at once, and asks again.
        while counts[200] < 18 and line is not None:
            counts[status_of(others[0])] += 1
        assert counts[200] == 18
        assert [status_of(each) for each in others] == [402] * 3
        assert len(upstream.requests) == 20


def test_workers_share_a_cap(tmp_path):
    """Two workers, ten requests allowed, thirty at once; `/metrics` has the share of all."""
    (tmp_path / "budgets.toml").write_text(cap(requests=10, wait=30))
    port = free_port()
    with (
        Upstream(script) as upstream,
        ThreadPoolExecutor(30) as pool,
        Workers(
            tmp_path,
            upstream.url,
            options={
                "tee_hosts": f"127.0.0.1:{upstream.port}=openai",
                "tee_metrics": str(port),
            },
            environment={"TOKENTEE_BUDGETS": str(tmp_path / "budgets.toml")},
        ) as workers,
    ):
        found = [pool.submit(lambda: ask(workers)[0]) for _ in range(30)]
        assert Counter(each.result() for each in found) == {200: 10, 402: 20}
        assert len(upstream.requests) == 10

        def is_all_told() -> bool:  # a worker knows what the others spent within a second
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
            return bool(re.search(r'tokentee_cap_spent_ratio{cap="daily"(,[^}]*)?} 1\.0', text))

        assert rows.eventually(is_all_told)
        assert workers.stop() == 0, workers.log


CHILD = """
import json, sys, urllib.request
url, body = sys.argv[1:]
for _ in range(3):
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            answer.read()  # who leaves before the end is held to the most that it can cost
            print(answer.status, flush=True)
    except urllib.error.HTTPError as error:
        print(error.code, json.load(error)["error"]["message"], flush=True)
"""


def test_a_command_has_a_cap_of_its_own(tmp_path):
    import sys

    body = json.dumps({"model": "gpt-4o", "max_tokens": 16, "messages": MESSAGES})
    with Upstream(script) as upstream:
        host = f"localhost:{upstream.port}"
        done = run(
            tmp_path, "--max-usd", "0.01", "--set", f"tee_hosts={host}=openai",
            "--", sys.executable, "-c", CHILD, f"http://{host}/v1/chat/completions", body,
        )  # fmt: skip
        statuses = [line[:3] for line in done.stdout.decode().splitlines()]
        assert statuses == ["200", "200", "402"]
        assert "refused by the cap run" in done.stdout.decode()
        assert len(upstream.requests) == 2
    said = done.stderr.decode()
    assert "--max-list-usd also what a plan covers" in said
    assert "the cap run refuses requests" in said
    assert "caps refused 1 request" in said
