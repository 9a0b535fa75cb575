"""One meter: what was read live is read again from captures, flow files and through `mitmdump -nr`."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.connection import Client, Server
from mitmproxy.io import FlowWriter
from websockets.sync.client import connect

from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded
from tests.addon.recordings.recorded_files import FILE_KINDS
from tests.proxy import forked, rows
from tests.proxy.mitmdump import TEE, Mitmdump
from tests.proxy.pair import OPENAI, Pair, exchange, new_tag, pair
from tests.proxy.test_websocket import CREATE, answer_of
from tests.proxy.test_websocket import upstream as websocket_upstream

pytestmark = pytest.mark.proxy

MAIN = [sys.executable, "-c", "from addon.cli import main; main()"]
SAME = (
    "id", "opened_at", "origin", "dialect", "path", "request_model", "response_model",
    "response_id", "outcome", "http_status", "finish_reason", "events", "response_bytes",
    "upstream_digest", "content_digest", "usage_source", "input_tokens", "cache_read_tokens",
    "output_tokens", "reasoning_tokens", "usage_json", "revision",
)  # fmt: skip
"""What does not hang on when and how an exchange was read."""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Path]]:
    """A proxy that captures, after it has recorded asked, unasked and plain exchanges."""
    folder = tmp_path_factory.mktemp("captured")
    captures = folder / "captures"
    with pair(folder, with_bare=False, options={"tee_capture": str(captures)}) as running:
        for asked in (True, None):
            exchange(running.tee, OPENAI, new_tag(), asked=asked)
        yield running, captures


def facts(ledger: Path) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SAME} for row in rows.exchanges(ledger)]


def files(captures: Path) -> list[Path]:
    assert rows.eventually(lambda: len(recorded(captures)) == 2)
    return sorted(captures.iterdir())


def recorded(captures: Path) -> list[Recorded]:
    if not captures.exists():
        return []
    items = [item for path in sorted(captures.iterdir()) for item in read(path, url=None)]
    return [item for item in items if isinstance(item, Recorded)]


def flow_of(item: Recorded) -> http.HTTPFlow:
    """The flow that mitmproxy would have saved of it."""
    client = Client(peername=("127.0.0.1", 9), sockname=("127.0.0.1", 9), timestamp_start=0)
    flow = http.HTTPFlow(client, Server(address=None))
    flow.id = item.id
    flow.request = http.Request(
        host=item.origin.host, port=item.origin.port, method=item.method.encode(),
        scheme=item.origin.scheme.encode(), authority=b"", path=item.path.encode(),
        http_version=b"HTTP/1.1", headers=http.Headers(item.request_headers),
        content=item.request_body, trailers=None,
        timestamp_start=item.opened_at.timestamp(), timestamp_end=None,
    )  # fmt: skip
    assert item.status is not None
    assert item.responded_at is not None
    assert item.ended_at is not None
    flow.response = http.Response(
        http_version=b"HTTP/1.1", status_code=item.status, reason=b"OK",
        headers=http.Headers(item.response_headers), content=item.response_body, trailers=None,
        timestamp_start=item.responded_at.timestamp(), timestamp_end=item.ended_at.timestamp(),
    )  # fmt: skip
    return flow


def run(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return forked.run(program, *words, folder=Path.cwd(), environment=os.environ | environment)


def tokentee(*words: str) -> subprocess.CompletedProcess[bytes]:
    return run("tokentee", *words)


def load(flows: Path, ledger: Path) -> None:
    """With `mitmdump -nr`, into a ledger."""
    options = [f"confdir={ledger.parent}", f"ledger_url=sqlite:///{ledger}"]
    words = [word for option in options for word in ("--set", option)]
    for said in ("This run by model\n", "tokentee: no new LLM request was read: "):
        done = run("mitmdump", "-nr", str(flows), "-s", str(TEE), *words)
        done.check_returncode()
        assert said in done.stderr.decode(), done.stderr


def test_captures_are_read_as_live(captured, tmp_path: Path):
    running, captures = captured
    ledger = tmp_path / "replayed.db"
    files(captures)
    done = tokentee("replay", str(captures), "--ledger", f"sqlite:///{ledger}")
    assert done.returncode == 0, done.stderr
    assert facts(ledger) == facts(running.tee.ledger)
    assert {row["source"] for row in rows.exchanges(ledger)} == {"replay"}
    for row in rows.exchanges(ledger):
        assert row["capture"].endswith(f"#{row['id']}")


def test_replaying_again_and_onto_the_live_ledger_adds_nothing(captured, tmp_path: Path):
    running, captures = captured
    files(captures)
    before = rows.exchanges(running.tee.ledger)
    for _ in range(2):
        done = tokentee("replay", str(captures), "--ledger", f"sqlite:///{running.tee.ledger}")
        assert done.returncode == 0, done.stderr
        assert rows.exchanges(running.tee.ledger) == before


def test_a_flow_file_is_read_the_same_by_replay_and_by_mitmdump(captured, tmp_path: Path):
    running, captures = captured
    files(captures)
    flows = tmp_path / "saved.mitm"
    with flows.open("wb") as file:
        writer = FlowWriter(file)
        for item in recorded(captures):
            writer.add(flow_of(item))
    replayed, loaded = tmp_path / "replayed.db", tmp_path / "loaded.db"
    done = tokentee("replay", str(flows), "--ledger", f"sqlite:///{replayed}")
    assert done.returncode == 0, done.stderr
    load(flows, loaded)
    assert facts(replayed) == facts(running.tee.ledger)
    assert facts(loaded) == facts(running.tee.ledger)


DOOR_FACTS = (
    "id, opened_at, origin, dialect, path, request_model, response_model, response_id, outcome, "
    "http_status, finish_reason, streamed, events, response_bytes, upstream_digest, settled_at"
)


@pytest.mark.parametrize("kind", ["flows", "firefox-har"])
def test_mitmdump_and_replay_read_a_file_alike(kind: str, tmp_path: Path):
    """WebSockets in flow files, and HAR, of which mitmproxy gives flows new ids at each reading.
    mitmproxy's reader of HAR leaves out the messages of WebSockets."""
    path = FILE_KINDS[kind](tmp_path)
    replayed, loaded = tmp_path / "replayed.db", tmp_path / "loaded.db"
    done = tokentee("replay", str(path), "--ledger", f"sqlite:///{replayed}")
    assert done.returncode == 0, done.stderr
    load(path, loaded)
    found = [
        sqlite3.connect(ledger)
        .execute(f"SELECT {DOOR_FACTS} FROM exchanges ORDER BY id")
        .fetchall()
        for ledger in (replayed, loaded)
    ]
    if kind == "flows":
        assert len(found[0]) == 7
        assert found[0] == found[1]
    else:
        assert [row for row in found[0] if row[3] != "openai.responses"] == found[1]
        assert len(found[1]) == 5


def test_a_websocket_is_captured_and_read_again(tmp_path: Path):
    captures, ledger = tmp_path / "captures", tmp_path / "replayed.db"
    options = {"tee_capture": str(captures)}
    with (
        websocket_upstream() as port,
        Mitmdump(tmp_path, upstreams=[f"http://127.0.0.1:{port}"], options=options) as running,
    ):
        host, own_port = running.address()
        with connect(f"ws://{host}:{own_port}/v1/responses") as client:
            for number in (1, 2):
                client.send(CREATE)
                assert [client.recv() for _ in range(5)] == answer_of(number)
        assert rows.eventually(lambda: captures.exists() and len(recorded(captures)) == 1)
        live = facts(running.ledger)
    done = tokentee("replay", str(captures), "--ledger", f"sqlite:///{ledger}")
    assert done.returncode == 0, done.stderr
    assert len(live) == 2
    assert facts(ledger) == live
