"""Sessions of hosted agents, from recordings: what they state is booked once, in whatever order and
however often it is read."""

import itertools
import json
import sqlite3
from base64 import b64encode

import pytest
from typer.testing import CliRunner

from addon.metering import hosted
from ledger.model.charge import DIFFERS
from ledger.model.usage import Usage
from ledger.store.writing.running_totals import FELL
from tests.addon.recordings.test_file_kinds import ledger, replay
from tests.app import APP

__all__ = ["ledger"]

MODEL = "claude-sonnet-4-6"
SESSION = "sesn_011CZkZ"


def request(number, at, **usage):
    figures = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **usage}
    return {
        "id": f"sevt_{number}",
        "type": "span.model_request_end",
        "model_request_start_id": f"sevt_start_{number}",
        "is_error": False,
        "processed_at": f"2026-11-20T10:00:{at:02}Z",
        "model_usage": figures,
    }


def total(inputs, outputs, seconds, cents=None, written=0):
    return {
        "active_seconds": seconds,
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": written},
        "cache_read_input_tokens": 0,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "list_cost": cents and {"amount": str(cents), "currency": "USD"},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    }


def session(usage):
    agent = {"id": "agent_1", "type": "agent", "model": {"id": MODEL}, "name": "a", "version": 1}
    return {
        "id": SESSION,
        "type": "session",
        "agent": agent,
        "status": "idle",
        "stats": {"active_seconds": 99.0},
        "usage": usage,
    }


REQUESTS = [
    request(1, 10, input_tokens=60, output_tokens=6),
    request(2, 20, input_tokens=40, output_tokens=4, cache_creation_input_tokens=30),
]
SNAPSHOT = {
    "id": "sevt_3",
    "type": "session.usage",
    "processed_at": "2026-11-20T10:00:30Z",
    "usage": total(100, 10, 1.5, 1, 30),
}
NOISE = {"id": "sevt_0", "type": "agent.message", "content": [{"type": "text", "text": "hello"}]}
PATH = f"/v1/sessions/{SESSION}"
FETCH = ("GET", PATH, session(total(100, 10, 1.5, 1, 30)))
EARLY = ("GET", PATH, session(total(60, 6, 0.5)))
LIST = ("GET", f"{PATH}/events?limit=100", {"data": [NOISE, *REQUESTS], "next_page": None})
STREAM = ("GET", f"{PATH}/events/stream?beta=true", [NOISE, *REQUESTS, SNAPSHOT])
BARE = ("GET", f"{PATH}/events/stream", [NOISE, *REQUESTS])
SESSIONS = ("GET", "/v1/sessions?limit=20", {"data": [FETCH[2]], "next_page": None})
NEW = ("POST", "/v1/sessions?beta=true", session(total(0, 0, 0)))
SEND: tuple[str, str, object] = ("POST", f"{PATH}/events?beta=true", {"data": []})
ARCHIVE = ("POST", f"{PATH}/archive?beta=true", FETCH[2])


def entry(number, method, path, answer, host):
    status = answer if isinstance(answer, int) else 200
    if status != 200:
        error = {"type": "authentication_error", "message": "no"}
        answer = {"type": "error", "error": error}
    is_stream = isinstance(answer, list)
    if is_stream:
        events = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in answer]
        body = "".join(events)
    else:
        body = json.dumps(answer)
    sent = {"body": {"agent": "agent_1"}} if method == "POST" else {}
    return {
        "name": f"entry {number}",
        "started_at": "2026-11-20T10:00:15Z"
        if answer is EARLY[2]
        else f"2026-11-20T10:{number + 1:02}:00Z",
        "request": {"method": method, "url": host + path, "headers": {}, **sent},
        "response": {
            "status": status,
            "headers": {"content-type": "text/event-stream" if is_stream else "application/json"},
            "body_b64": b64encode(body.encode()).decode(),
            "encoded": True,
        },
    }


def read(ledger, tmp_path, *answers, begin=0, host="https://api.anthropic.com"):
    path = tmp_path / "answers.jsonl"
    lines = [
        entry(begin + at, method, place, answer, host)
        for at, (method, place, answer) in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return replay(ledger, path)


def rows(ledger):
    connection = sqlite3.connect(ledger)
    connection.row_factory = sqlite3.Row
    found = connection.execute("SELECT * FROM requests ORDER BY opened_at, id").fetchall()
    connection.close()
    return [dict(row) for row in found]


def sums(ledger):
    found = rows(ledger)
    units = [json.loads(row["tool_units"] or "{}") for row in found]
    return {
        "input": sum(row["input_tokens"] or 0 for row in found),
        "output": sum(row["output_tokens"] or 0 for row in found),
        "written": sum(row["cache_write_tokens"] or 0 for row in found),
        "milliseconds": sum(one.get("session_milliseconds", 0) for one in units),
        "list_cost": sum(row["reported_cost_picousd"] or 0 for row in found),
    }


RIGHT = {
    "input": 130,
    "output": 10,
    "written": 30,
    "milliseconds": 1500,
    "list_cost": 10**10,
}
ORDERS = {
    "fetched twice": (FETCH, FETCH),
    "ordered, then fetched": (NEW, SEND, FETCH, ARCHIVE),
    "streamed twice": (NEW, STREAM, STREAM),
    "streamed, then fetched": (NEW, BARE, FETCH),
    "fetched, then streamed": (FETCH, BARE),
    "fetched, then listed twice": (FETCH, LIST, LIST),
    "fetched before and after": (EARLY, LIST, FETCH),
    "an older total comes last": (FETCH, LIST, EARLY),
    "in a list of sessions": (SESSIONS, STREAM, SESSIONS, FETCH),
}


@pytest.mark.parametrize("answers", ORDERS.values(), ids=ORDERS)
def test_what_is_stated_is_booked_once(answers, ledger, tmp_path):
    for again in range(2):
        done = read(ledger, tmp_path, *answers, begin=20 * again)
        assert done.exit_code == 0, done.output
        assert sums(ledger) == RIGHT
    requests = [row for row in rows(ledger) if row["operation"] == "agent_request"]
    assert all(row["session_id"] == SESSION for row in rows(ledger))
    if any(answer in answers for answer in (LIST, STREAM, BARE)):
        assert [row["response_id"] for row in requests] == ["sevt_1", "sevt_2"]
        assert [row["input_tokens"] for row in requests] == [60, 70]
        assert {row["request_model"] for row in requests} == {MODEL}


@pytest.mark.parametrize("order", [*itertools.permutations((EARLY, FETCH, LIST, STREAM))])
def test_the_order_of_reading_does_not_matter(order, ledger, tmp_path):
    read(ledger, tmp_path, *order)
    read(ledger, tmp_path, FETCH, begin=20)
    assert sums(ledger) == RIGHT


def unread(ledger):
    """How many complete requests have no usage, and how many there are."""
    words = ["report", "--format", "json"]
    done = CliRunner().invoke(APP, words, env={"TOKENTEE_LEDGER": f"sqlite:///{ledger}"})
    assert done.exit_code == 0, done.output
    total = json.loads(done.stdout)["total"]
    return total["complete_without_usage"], total["requests"]


def test_what_starts_work_has_a_row(ledger, tmp_path):
    for _ in range(2):
        read(ledger, tmp_path, SEND, SEND)
        assert unread(ledger) == (2, 2)
    assert [(row["operation"], row["response_id"], row["session_id"]) for row in rows(ledger)] == [
        ("agent_call", SESSION, SESSION)
    ] * 2
    assert all(row["finish_reason"] == "in_progress" for row in rows(ledger))
    assert all(row["cost_picousd"] is None for row in rows(ledger))
    read(ledger, tmp_path, FETCH, ARCHIVE, begin=5)
    assert unread(ledger) == (0, 3)
    assert sums(ledger) == RIGHT


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_an_error_has_a_row_and_moves_no_total(status, ledger, tmp_path):
    failing = [
        (method, path, status)
        for method, path, _ in (NEW, SEND, ARCHIVE, EARLY, LIST, STREAM, SESSIONS)
    ]
    read(ledger, tmp_path, *failing, FETCH, *failing, FETCH)
    failed = [row for row in rows(ledger) if row["operation"] == "agent_call"]
    assert len(failed) == 2 * len(failing)
    assert {(row["outcome"], row["http_status"], row["response_id"]) for row in failed} == {
        ("http_error", status, None)
    }
    assert sum(row["session_id"] == SESSION for row in failed) == 2 * (len(failing) - 2)
    assert len(rows(ledger)) == len(failed) + 1
    assert unread(ledger) == (0, len(failed) + 1)
    assert sums(ledger) == RIGHT


def test_runtime_is_charged(ledger, tmp_path):
    read(ledger, tmp_path, ("GET", PATH, session(total(0, 0, 3600.0, 8))))
    (row,) = rows(ledger)
    assert row["cost_state"] == "priced"
    assert abs(row["cost_picousd"] - 8 * 10**10) < 10**6  # $0.08 an hour
    assert row["reported_cost_picousd"] == 8 * 10**10


def test_a_total_that_falls_is_unknown_and_said(ledger, tmp_path):
    read(ledger, tmp_path, FETCH)
    read(ledger, tmp_path, ("GET", PATH, session(total(50, 20, 1.5, 1, 30))), begin=5)
    fallen = rows(ledger)[-1]
    assert fallen["input_tokens"] is None
    assert fallen["output_tokens"] == 10
    assert json.loads(fallen["remarks"]) == [FELL.format("input_tokens")]


def test_a_total_that_falls_below_its_requests_is_said_once(ledger, tmp_path):
    fallen = ("GET", PATH, session(total(50, 10, 1.5, 1, 30)))
    again = ("GET", PATH, session(total(60, 10, 1.5, 1, 30)))
    read(ledger, tmp_path, STREAM, FETCH, fallen, again)
    read(ledger, tmp_path, FETCH, fallen, again, begin=20)
    found = [row for row in rows(ledger) if row["remarks"] != "[]"]
    assert [(row["input_tokens"], json.loads(row["remarks"])) for row in found] == [
        (None, [FELL.format("input_tokens")])
    ]
    assert sums(ledger) == RIGHT


def test_a_total_that_lags_behind_its_requests_has_not_fallen(ledger, tmp_path):
    read(ledger, tmp_path, LIST, ("GET", PATH, session(total(60, 6, 0.5))), FETCH)
    assert all(row["remarks"] == "[]" for row in rows(ledger))
    assert sums(ledger) == RIGHT


DEEP: dict[str, object] = {}
for _ in range(200):
    DEEP = {"a": DEEP}
ODD = [10**400, 10**30, -1, 1.5, "7", "x", None, [], {}, DEEP, True]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_a_total_that_is_broken_makes_no_figure(odd, ledger, tmp_path):
    broken = {**total(100, 10, 1.5, 1, 30), "input_tokens": odd, "active_seconds": odd}
    read(ledger, tmp_path, ("GET", PATH, session(broken)), FETCH, ("GET", PATH, session(broken)))
    found = sums(ledger)
    assert found["output"] == 10
    assert found["list_cost"] == 10**10
    counts = [row[name] for row in rows(ledger) for name in ("input_tokens", "output_tokens")]
    assert all(count is None or count >= 0 for count in counts)


@pytest.mark.parametrize("answers", ORDERS.values(), ids=ORDERS)
def test_commands_keep_the_figures(answers, ledger, tmp_path):
    read(ledger, tmp_path, *answers)
    booked, other = rows(ledger), tmp_path / "other.sqlite3"
    urls = f"sqlite:///{ledger}", f"sqlite:///{other}"
    file = str(tmp_path / "answers.jsonl")
    for words in (["verify", file], ["rebuild", file], ["reprice"], ["sync", *urls], ["verify"]):
        done = CliRunner().invoke(APP, words, env={"TOKENTEE_LEDGER": urls[0]})
        assert done.exit_code == 0, (words, done.output)
        assert rows(ledger) == booked
    assert rows(other) == booked


def test_a_request_that_was_misread_is_rebuilt(ledger, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("addon.metering.exchange.hosted.rows_of", misread(hosted.rows_of))
        read(ledger, tmp_path, LIST)
    assert sums(ledger)["input"] == 2
    file = str(tmp_path / "answers.jsonl")
    done = CliRunner().invoke(
        APP, ["rebuild", file], env={"TOKENTEE_LEDGER": f"sqlite:///{ledger}"}
    )
    assert done.exit_code == 0, done.output
    assert sums(ledger)["input"] == 130


def misread(rows_of):
    return lambda settled, facts, _: rows_of(settled, facts, lambda *_: Usage(input_tokens=1))


@pytest.mark.parametrize(
    ("model", "cents", "differs"),
    [(MODEL, 8, False), (MODEL, 9, False), (MODEL, 80, True), ("x", 80, False)],
)
def test_a_cost_of_the_session_that_differs_is_said(model, cents, differs, ledger, tmp_path):
    stated = session(total(10 if model == "x" else 0, 0, 3700.0, cents))
    stated["agent"]["model"]["id"] = model
    read(ledger, tmp_path, ("GET", PATH, stated))
    (row,) = rows(ledger)
    begin = f"{DIFFERS}: $0.8 for the session, and the list value is $0.082"
    assert [one.startswith(begin) for one in json.loads(row["remarks"])] == [True] * differs


GPT = "gpt-5.4"
OPENAI = "https://api.openai.com"
AGENTS = "/v1/agents/sessions"


def used(inputs, outputs):
    return {
        "input_tokens": inputs,
        "input_tokens_details": {"cached_tokens": inputs // 2},
        "output_tokens": outputs,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": inputs + outputs,
    }


def turn(number, usage, status="completed"):
    return {
        "id": f"turn_{number}",
        "object": "agent.session.turn",
        "session_id": "as_1",
        "status": status,
        "created_at": 1_795_000_000,
        "completed_at": 1_795_000_000 + number,
        "usage": usage,
    }


OWN = {
    "id": "as_1",
    "object": "agent.session",
    "agent": {"id": "agent_1", "model": GPT},
    "status": "idle",
    "usage": used(500, 50),
}
TURNS = [turn(1, used(200, 20)), turn(2, used(100, 10))]
EVENTS = [
    {"type": "agent.session.turn.in_progress", "turn": turn(1, None, "in_progress")},
    *({"type": "agent.session.turn.completed", "turn": one} for one in TURNS),
    {"type": "agent.session.idle", "session": OWN},
]
OF_OPENAI = {
    "fetched twice": [("GET", f"{AGENTS}/as_1", OWN)] * 2,
    "streamed twice": [("GET", f"{AGENTS}/as_1/events", EVENTS)] * 2,
    "fetched, then turns": [
        ("GET", f"{AGENTS}/as_1", OWN),
        ("GET", f"{AGENTS}/as_1/turns", {"object": "list", "data": TURNS}),
        ("GET", f"{AGENTS}/as_1/turns/turn_1", TURNS[0]),
    ],
    "turns, then fetched": [
        ("GET", f"{AGENTS}/as_1/turns", {"object": "list", "data": TURNS}),
        ("GET", AGENTS, {"object": "list", "data": [OWN]}),
    ],
}


@pytest.mark.parametrize("answers", OF_OPENAI.values(), ids=OF_OPENAI)
def test_a_session_of_openai_is_booked_once(answers, ledger, tmp_path):
    for again in range(2):
        read(ledger, tmp_path, *answers, begin=20 * again, host=OPENAI)
        assert sums(ledger)["input"] == 500
        assert sums(ledger)["output"] == 50
    found = rows(ledger)
    assert sum(row["cache_read_tokens"] for row in found) == 250
    turns = {row["response_id"] for row in found if row["operation"] == "agent_request"}
    assert turns == (
        {"turn_1", "turn_2"}
        if len({*map(str, answers)}) > 1 or "events" in answers[0][1]
        else set()
    )
