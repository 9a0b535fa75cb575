"""What a log states in sums alone is booked as the difference to the answers that are known."""

import json

import pytest
from msgspec.structs import replace

from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import (
    MS,
    OPENCLAW,
    PATHS,
    SESSION,
    claude,
    grok_turn,
    write_home,
)
from tests.addon.parts.agent_logs.test_command import live
from tests.ledger.written import put, rows
from tests.named import for_each

HAIKU, OPUS = "claude-haiku-4-5-20251001", "claude-opus-5"
SUMS = (
    "SELECT model, input_tokens, cache_read_tokens, output_tokens FROM requests WHERE {} ORDER BY 1"
)


def cost_state(**outputs):
    """The sums of a session whose answers have 2 104 tokens of input each."""
    return {
        "type": "cost-state",
        "sessionId": SESSION,
        "modelUsage": {
            model.replace("_", "-"): {
                "inputTokens": 4,
                "outputTokens": output,
                "cacheReadInputTokens": 2_000,
                "cacheCreationInputTokens": 100,
                "costUSD": 1,
            }
            for model, output in outputs.items()
        },
    }


def sums(engine):
    return rows(engine, SUMS.format("capture LIKE '%' AND id IN (SELECT exchange_id FROM readings "
                                    "WHERE usage_json LIKE '%sum of a session%')"))  # fmt: skip


def test_what_no_answer_of_claude_code_has_is_a_row_by_model(home, engine):
    """Of several statements the last one has those before; a name in brackets is its model's."""
    stated = cost_state(**{HAIKU: 30, f"{OPUS}[1m]": 60})
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{HAIKU: 9}), stated])
    assert "3 booked" in run()
    assert sums(engine) == [(HAIKU, 0, 0, 23), (OPUS, 2_104, 2_000, 60)]
    assert ": 0 booked, 3 known" in run()


def test_a_sum_gives_way_to_answers_that_come_later(home, engine):
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{HAIKU: 9, OPUS: 60})])
    run()
    assert sums(engine) == [(HAIKU, 0, 0, 2), (OPUS, 2_104, 2_000, 60)]
    log = home / PATHS["claude-code"]
    answer = claude("msg_2", 60, requestId="req_2", isSidechain=True, agentId="a1")
    answer["message"]["model"] = OPUS
    (log.parent / "agent-a1.jsonl").write_text(json.dumps(answer) + "\n")
    log.write_text(log.read_text() + "\n")
    assert "1 booked, 2 known, 1 corrected" in run()
    assert sums(engine) == [(HAIKU, 0, 0, 2), (OPUS, 0, 0, 0)]
    assert "corrected" not in run()


def test_what_was_recorded_is_no_part_of_a_sum(home, engine):
    """A call that no line of the log has, as that which compacts a session."""
    exchange, read, _ = live("live-1", "msg_9", input_tokens=2_104, output_tokens=60)
    exchange = replace(exchange, request_model=OPUS, response_model=OPUS)
    put(
        engine,
        (
            exchange,
            replace(
                read, usage=replace(read.usage, cache_read_tokens=2_000, cache_write_tokens=100)
            ),
            (),
        ),
    )
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{HAIKU: 7, OPUS: 60})])
    assert ": 1 booked" in run()
    assert not [row for row in sums(engine) if row[3]]


def test_a_part_of_the_answers_makes_no_sum(home, engine):
    write_home(home, "claude-code", claude_lines=[claude(), cost_state(**{HAIKU: 30})])
    assert "booked" in run("--until", "2026-11-02T12:00:05+00:00")
    assert sums(engine) == []


SHUTDOWN = {"inputTokens": 21_343, "outputTokens": 100, "cacheReadTokens": 0}
ENDS = [
    {"type": "session.start", "timestamp": "2026-11-02T12:00:00Z", "data": {"copilotVersion": "1"}},
    {
        "type": "session.shutdown",
        "timestamp": "2026-11-02T12:00:05Z",
        "data": {"modelMetrics": {"gpt-5.4-mini": {"usage": SHUTDOWN}}},
    },
]


@pytest.mark.parametrize(("ends", "left"), [(1, []), (2, [("gpt-5.4-mini", 21_343, 0, 100)])])
def test_the_sums_of_copilot_beside_its_store(home, engine, ends, left):
    """Each end of a session states what came since it was resumed."""
    write_home(home, "copilot")
    log = home / ".copilot/session-state" / SESSION / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(line) + "\n" for line in [ENDS[0], *ENDS[1:] * ends]))
    run()
    assert sums(engine) == left


def usage_line(inputs, output):
    figures = {"inputTokens": inputs, "outputTokens": output, "cachedTokens": 0}
    figures |= {"thoughtsTokens": 0, "totalTokens": inputs + output}
    facts = {"schemaVersion": 1, "id": "u1", "sessionId": SESSION, "model": "qwen3-coder-plus"}
    return facts | {"timestamp": "2026-11-02T12:00:05.000Z"} | figures


def telemetry(inputs, output):
    event: dict[str, object] = {"event.name": "qwen-code.api_response", "model": "qwen3-coder-plus"}
    event |= {"input_token_count": inputs, "output_token_count": output}
    event |= {"thoughts_token_count": 0, "total_token_count": inputs + output}
    facts = {"type": "system", "subtype": "ui_telemetry", "sessionId": SESSION}
    return facts | {"timestamp": "2026-11-02T12:00:05Z", "systemPayload": {"uiEvent": event}}


def test_calls_of_qwen_code_that_no_message_shows(home, engine):
    """A session's events have them, and a month's usage file: they are booked once."""
    write_home(home, "qwen-code")
    log, month = home / PATHS["qwen-code"], home / ".qwen/usage/token-usage-2026-11.jsonl"
    month.parent.mkdir()
    calls = [(900, 40), (300, 5), (70, 6)]
    for path, line in ((log, telemetry), (month, usage_line)):
        with path.open("a") as file:
            file.writelines(json.dumps(line(*call)) + "\n" for call in calls)
    run()
    assert sums(engine) == [("qwen3-coder-plus", 370, 0, 11)]
    run()
    assert rows(engine, "SELECT count(*) FROM requests") == [(2,)]


@pytest.mark.parametrize(("agent", "session"), [(None, SESSION), ("droid", None), (None, None)])
def test_droid_is_not_booked_again_where_its_calls_were_recorded(home, engine, agent, session):
    for number, (inputs, output) in enumerate([(300_000, 40), (1_000, 10)]):
        exchange, read, _ = live(
            f"live-{number}", f"resp_{number}", input_tokens=inputs, output_tokens=output
        )
        exchange = replace(exchange, agent=agent, session_id=session)
        exchange = replace(exchange, request_model=HAIKU, response_model=HAIKU)
        usage = replace(read.usage, cache_read_tokens=500, cache_write_tokens=0)
        put(engine, (exchange, replace(read, usage=usage), ()))
    write_home(home, "droid")
    assert ": 0 booked" in run()


def test_what_is_not_all_of_a_sum_of_droid_is_of_somebody_else(home, engine):
    exchange, read, _ = live("live-1", "resp_1", input_tokens=300_000, output_tokens=40)
    exchange = replace(exchange, session_id=None, request_model=HAIKU, response_model=HAIKU)
    put(engine, (exchange, read, ()))
    write_home(home, "droid")
    assert ": 1 booked" in run()
    assert sums(engine) == [(HAIKU, 301_000, 1_000, 50)]


@pytest.mark.parametrize(
    ("agent", "session"), [(None, SESSION), ("grok-build", None), (None, None)]
)
def test_turns_of_grok_build_are_added_less_what_was_recorded(home, engine, agent, session):
    exchange, read, _ = live("live-1", "resp_1", input_tokens=2_100, output_tokens=70)
    exchange = replace(exchange, agent=agent, session_id=session)
    exchange = replace(exchange, request_model="grok-4.5", response_model="grok-4.5")
    usage = replace(read.usage, cache_read_tokens=1_000, cache_write_tokens=0)
    put(engine, (exchange, replace(read, usage=usage), ()))
    write_home(home, "grok-build")
    assert ": 0 booked" in run()
    with (home / PATHS["grok-build"]).open("a") as file:
        file.write(json.dumps(grok_turn(5_000, 9, at=MS + 120_000)) + "\n")
    assert ": 1 booked" in run()
    if agent or session:
        assert sums(engine) == [("grok-4.5", 5_000, 500, 9)]


FIVE_CENTS = {"costUsdTicks": 500_000_000, "costIsPartial": False}


@for_each(
    "costs, state, picousd",
    [
        ([FIVE_CENTS, FIVE_CENTS], "reported", 10**11),
        ([FIVE_CENTS, {"costUsdTicks": 500_000_000}], "reported", 10**11),
        ([FIVE_CENTS, {}], "partial", None),
        ([{}, FIVE_CENTS], "partial", None),
        ([FIVE_CENTS, {"costUsdTicks": -1}], "partial", None),
        ([FIVE_CENTS, {"costUsdTicks": 10**16}], "partial", None),
        ([FIVE_CENTS, {**FIVE_CENTS, "costIsPartial": True}], "partial", None),
    ],
)
def test_the_cost_that_grok_build_states(tmp_path, costs, state, picousd):
    """In ticks, of which 10^10 are a USD, if each turn of the session states all of it."""
    path = tmp_path / "sessions" / "x" / SESSION / "updates.jsonl"
    path.parent.mkdir(parents=True)
    turns = [grok_turn(900, 40, cost=cost) for cost in costs]
    path.write_text("".join(json.dumps(line) + "\n" for line in turns))
    ledger = f"sqlite:///{tmp_path}/l.sqlite3"
    assert ": 1 booked" in run("--agent", "grok-build", "--ledger", ledger, path)
    ((booked, cost),) = rows(ledger, "SELECT cost_state, cost_picousd FROM requests")
    assert booked == state
    assert picousd is None or cost == picousd


def test_the_rest_of_a_sum_has_no_stated_cost(home, engine):
    exchange, read, _ = live("live-1", "resp_1", input_tokens=900, output_tokens=40)
    exchange = replace(exchange, request_model="grok-4.5", response_model="grok-4.5")
    usage = replace(read.usage, cache_read_tokens=500, cache_write_tokens=0)
    put(engine, (exchange, replace(read, usage=usage), ()))
    path = home / PATHS["grok-build"]
    path.parent.mkdir(parents=True)
    turns = [grok_turn(900, 40, cost=FIVE_CENTS), grok_turn(1_000, 50, cost=FIVE_CENTS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in turns))
    assert ": 1 booked" in run()
    assert sums(engine) == [("grok-4.5", 1_000, 500, 50)]
    found = "SELECT reported_cost_picousd FROM requests WHERE source = 'import'"
    assert rows(engine, found) == [(None,)]


@pytest.mark.parametrize(
    "wrong", [-1, True, "9", 1e400, 10**400, None, {"a": 1}, [1], float("nan")]
)
def test_a_turn_of_grok_build_with_what_is_no_count(home, engine, wrong):
    lines = [grok_turn(900, 40), grok_turn(900, 40)]
    of_model = lines[0]["params"]["update"]["usage"]["modelUsage"]["grok-4.5"]
    of_model |= dict.fromkeys(of_model, wrong)
    path = home / PATHS["grok-build"]
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ": 1 booked" in run()
    assert sums(engine) == [("grok-4.5", 900, 500, 40)]


def test_an_entry_of_openclaw_that_was_copied_into_its_database(home, engine):
    write_home(home, "openclaw")
    log = home / f".openclaw/agents/main/sessions/{SESSION}.jsonl.deleted.2026-11-03T00-00-00.000Z"
    log.parent.mkdir(parents=True)
    without_id = {key: value for key, value in OPENCLAW.items() if key != "id"}
    log.write_text(f"{json.dumps(without_id)}\n{json.dumps({**OPENCLAW, 'type': 'custom'})}\n")
    assert "2 logs, 1 session: 1 booked" in run()
    assert rows(engine, "SELECT count(*) FROM requests") == [(1,)]


@pytest.mark.parametrize(("detail", "source"), [(True, "reported"), (False, "partial")])
def test_an_attempt_that_broke_has_an_end_that_nobody_sent(home, engine, detail, source):
    """A version that writes `stop_details` writes it for each answer that was ended."""
    ended = claude(message_more={"stop_details": None})
    other = claude("msg_2", requestId="req_2")
    if detail:
        other["message"]["stop_details"] = None
    write_home(home, "claude-code", claude_lines=[other, ended])
    run()
    found = rows(engine, "SELECT usage_source FROM requests WHERE response_id = 'msg_2'")
    assert found == [(source,)]
