"""A recording says what was booked: `verify` holds on it, and `rebuild` moves nothing.

Every case of `tests/data` and every exchange of the corpus passes through the recorder as live
traffic that is captured: whole or cut at random, ended by either side, compressed, with our
question for usage in it. Then both commands read the captures. So they do with a WebSocket that is
cut after any of its messages. A result that is fetched is booked once: whole, however often, in any
order of its keys."""

import asyncio
import base64
import gzip
import json
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mitmproxy import http
from mitmproxy.flow import Error
from mitmproxy.test import tflow
from typer.testing import CliRunner

from ledger.model.duplicates import content_digest
from ledger.model.exchange import Outcome
from ledger.store import db
from tests.addon.dialects.test_cases import CASES, load
from tests.addon.proxy.recording import recording
from tests.addon.recordings.recorded_files import SESSION
from tests.addon.recordings.recorded_files import flow as session_flow
from tests.app import APP
from tests.conftest import Say
from tests.ledger.written import rows
from tests.named import for_each

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
ENDS = ("finished", "client left", "upstream broke", "killed", "reset")
PIECE_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Passing:
    """One exchange that is to pass."""

    name: str
    method: str
    url: str
    request_headers: dict[str, str]
    request_body: bytes
    status: int
    headers: dict[str, str]
    body: bytes


def of_data() -> list[Passing]:
    """The cases that stand in the repository."""
    found = []
    for case in CASES:
        _, request, expected, content_type, body = load(case)
        asked = request.get("body")
        found.append(
            Passing(
                name=f"{case.parent.name}/{case.name}",
                method=request["method"],
                url=f"https://{request['host']}{request['path']}",
                request_headers=request.get("headers", {}),
                request_body=b"" if asked is None else json.dumps(asked).encode(),
                status=expected.get("status", 200),
                headers={"content-type": expected.get("content_type", content_type)}
                | expected.get("headers", {}),
                body=body,
            )
        )
    return found


def of_corpus() -> list[Passing]:
    """The recorded corpus beside the project."""
    found = []
    for family in sorted(CORPUS.glob("*.jsonl.gz")):
        for line in gzip.decompress(family.read_bytes()).splitlines():
            row = json.loads(line)
            request, response = row["request"], row["response"]
            body = request.get("body")
            headers = {
                name: str(value)
                for name, value in response["headers"].items()
                if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
            }
            found.append(
                Passing(
                    name=row["name"],
                    method=request["method"],
                    url=request["url"],
                    request_headers={},
                    request_body=b"" if body is None else json.dumps(body).encode(),
                    status=response["status"],
                    headers=headers,
                    body=base64.b64decode(response["body_b64"]),
                )
            )
    return found


def flow_of(passing: Passing, number: int, *, is_gzipped: bool) -> http.HTTPFlow:
    parts = urlsplit(passing.url if "://" in passing.url else f"https://{passing.url}")
    host = "".join(char for char in parts.netloc if char.isalnum() or char in ".-") or "masked"
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    body = passing.request_body
    headers: dict[str | bytes, str | bytes] = {"content-type": "application/json"}
    headers.update(passing.request_headers.items())
    if is_gzipped:
        headers["content-encoding"] = "gzip"
        body = gzip.compress(body)
    request = http.Request.make(passing.method, f"https://{host}{path or '/'}", body, headers)
    flow = tflow.tflow(req=request, live=True)
    flow.id = f"flow-{number}"
    return flow


async def play(
    drawn: random.Random, passing: Iterable[Passing], ledger: Path, captures: Path
) -> None:
    inject = drawn.choice(["auto", "always"])
    async with recording(
        ledger, tee_capture=str(captures), tee_inject=inject, ledger_commit="async"
    ) as (recorder, _):
        for number, one in enumerate(passing):
            flow = flow_of(one, number, is_gzipped=drawn.random() < 0.1)
            begun = recorder.request(flow)
            if begun is not None:
                await begun
            end = drawn.choice(ENDS) if drawn.random() < 0.7 else "finished"
            is_cut = end != "finished" and drawn.random() < 0.9
            body, headers = one.body, dict(one.headers)
            if drawn.random() < 0.2:
                headers["content-encoding"] = "gzip"
                body = gzip.compress(body)
            elif drawn.random() < 0.1:
                headers["content-encoding"] = "deflate"
                body = zlib.compress(body)
            if drawn.random() < 0.3:
                headers["content-length"] = str(len(body))
            if is_cut:
                body = body[: drawn.randrange(len(body) + 1)]
            has_answer = drawn.random() > 0.05 or end == "finished"
            if has_answer:
                flow.response = http.Response.make(one.status, b"", {})
                flow.response.headers.clear()
                for name, value in headers.items():
                    flow.response.headers[name] = value
                recorder.responseheaders(flow)
                if callable(flow.response.stream):
                    pieces = [
                        body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES)
                    ]
                    for piece in [*pieces, *([b""] if end in ("finished", "reset") else [])]:
                        flow.response.stream(piece)
                else:
                    flow.response.raw_content = body
            running = recorder.recording
            assert running is not None
            live = running.live.get(flow.id)
            if live is not None and end == "reset":
                live.broken_by_client = False
            if has_answer and end in ("finished", "reset"):
                await recorder.response(flow)
            else:
                message = {
                    "client left": "Client disconnected.",
                    "killed": Error.KILLED_MESSAGE,
                }.get(end, "peer closed connection")
                flow.error = Error(message)
                await recorder.error(flow)


def as_booked(passing: list[Passing], folder: Path, seed: int) -> str:
    ledger, captures = folder / "ledger.sqlite3", folder / "captures"
    asyncio.run(play(random.Random(seed), passing, ledger, captures))
    url = f"sqlite:///{ledger}"
    verified = CliRunner().invoke(APP, ["verify", str(captures), "--ledger", url])
    assert verified.stdout == "everything holds\n"
    assert verified.exit_code == 0, verified.stderr
    assert "by this version" not in verified.stderr
    rebuilt = CliRunner().invoke(APP, ["rebuild", str(captures), "--dry-run", "--ledger", url])
    assert rebuilt.exit_code == 0, rebuilt.stderr
    assert "\n0 exchanges are read differently now, " in f"\n{rebuilt.stderr}"
    assert "are not in the ledger" not in verified.stderr + rebuilt.stderr
    engine = db.open_engine(url)
    try:
        (counts,) = rows(
            engine,
            "SELECT COUNT(*), COUNT(DISTINCT outcome), SUM(usage_injected), "
            "SUM(usage_injected AND outcome <> 'complete'), "
            "(SELECT COUNT(*) FROM readings WHERE usage_source = 'estimated') FROM exchanges",
        )
    finally:
        engine.dispose()
    assert counts[1] == len(Outcome) - 1  # none is refused: no cap is set
    assert counts[2] >= counts[3] > 0
    assert counts[4] > 0
    return f"{counts[0]} exchanges as they were booked, {counts[2]} with our question"


@pytest.mark.large
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2))])
def test_the_cases_of_the_repository(tmp_path: Path, seed: int):
    passing = of_data()
    assert len(passing) > 200
    as_booked(passing, tmp_path, seed)


@pytest.mark.large
@pytest.mark.parametrize(
    ("seed", "share"), [(0, 2), *(pytest.param(n, 1, marks=pytest.mark.nightly) for n in (0, 1))]
)
def test_the_corpus(tmp_path: Path, seed: int, share: int, say_at_end: Say):
    """By default every second exchange."""
    if not CORPUS.is_dir():
        pytest.skip(f"the recorded corpus is not beside the project ({CORPUS})")
    say_at_end("corpus", as_booked(of_corpus()[::share], tmp_path, seed))


@for_each("kept", range(len(SESSION.messages or ()) + 1))
async def test_a_session_cut_after_any_message(tmp_path: Path, kept: int):
    ledger, captures = tmp_path / "ledger.sqlite3", tmp_path / "captures"
    async with recording(ledger, tee_capture=str(captures)) as (recorder, _):
        flow = session_flow(SESSION)
        flow.live = True
        assert flow.websocket is not None
        messages, flow.websocket.messages = flow.websocket.messages[:kept], []
        recorder.request(flow)
        recorder.responseheaders(flow)
        await recorder.response(flow)
        for message in messages:
            flow.websocket.messages.append(message)
            await recorder.websocket_message(flow)
        recorder.websocket_end(flow)
    url = f"sqlite:///{ledger}"
    verified = CliRunner().invoke(APP, ["verify", str(captures), "--ledger", url])
    assert [line for line in verified.stdout.splitlines() if "\t" in line] == []  # no breach
    rebuilt = CliRunner().invoke(APP, ["rebuild", str(captures), "--dry-run", "--ledger", url])
    has_row = kept > 0
    assert (verified.exit_code, rebuilt.exit_code) == ((0, 0) if has_row else (1, 1))
    assert "\n0 exchanges are read differently now, " in f"\n{rebuilt.stderr}"


FETCHED = [
    case for case in CASES if json.loads((case / "request.json").read_bytes())["method"] == "GET"
]


def line(case: Path, body: bytes, second: int) -> str:
    _, request, _, content_type, _ = load(case)
    value: dict[str, Any] = {
        "started_at": f"2026-11-02T12:{FETCHED.index(case):02}:{second:02}+00:00",
        "request": {
            "method": "GET", "url": f"https://{request['host']}{request['path']}", "headers": {}, "body": None,
        },
        "response": {
            "status": 200, "headers": {"content-type": content_type},
            "body_b64": base64.b64encode(body).decode(),
        },
    }  # fmt: skip
    return json.dumps(value) + "\n"


def booked(folder: Path, lines: str) -> list[Any]:
    path = folder / "fetched.jsonl"
    path.write_text(lines)
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    CliRunner().invoke(APP, ["replay", str(path), "--ledger", url])
    engine = db.open_engine(url)
    try:
        return rows(
            engine, "SELECT outcome, usage_source, input_tokens, output_tokens FROM requests"
        )
    finally:
        engine.dispose()


def test_a_part_is_no_result_and_the_whole_is_booked_once(tmp_path: Path):
    wholes, cuts, again = "", "", ""
    for case in FETCHED:
        body = load(case)[-1]
        cut = body.rstrip()[:-1].rstrip()
        wholes += line(case, body, 1)
        cuts += line(case, cut, 2) + line(case, cut[:-9], 3)
        again += line(case, body, 4) + line(case, body, 5)
    whole = booked(tmp_path, wholes)
    assert len(whole) == 21  # the others are not done, or failed
    assert booked(tmp_path, cuts) == whole
    assert booked(tmp_path, again) == whole


def test_the_order_of_keys_and_nulls_do_not_make_another_response():
    def digest(usage: str) -> str | None:
        return content_digest(
            response_model="m", created=1, finish_reason="completed", usage_json=usage
        )

    first = digest('{"input_tokens":5,"details":{"a":1,"b":null},"list":[{"x":1,"y":2}]}')
    assert digest('{"list":[{"y":2,"x":1}],"details":{"a":1},"input_tokens":5}') == first
    assert digest('{"list":[{"y":2,"x":1}],"details":{"a":2},"input_tokens":5}') != first
    assert digest("not json") not in (None, first)
