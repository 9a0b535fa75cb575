"""Public reports on agents' logs, each as a test that carries its number; the second table of
`docs/compared.md`."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import claude
from tests.ledger.written import rows

PAGE = Path(__file__).parents[4] / "docs" / "compared.md"
PARENT, CHILD = "019fa149-0000-7000-8000-000000000001", "019fa149-0000-7000-8000-000000000002"
BEGIN = datetime.fromisoformat("2026-11-20T10:00:00+00:00")


def codex(session, started, *events, copied=(), **meta):
    """A log of Codex: (second, kinds, input, output, written), the sums run on."""

    def line(second, kind, payload):
        at = (BEGIN + timedelta(seconds=second)).isoformat(timespec="milliseconds")
        return {"timestamp": at.replace("+00:00", "Z"), "type": kind, "payload": payload}

    yield line(started, "session_meta", {"id": session, "cwd": "/w/p", **meta})
    for thread in copied:
        yield line(started, "session_meta", {"id": thread, "cwd": "/w/p"})
    yield line(started, "turn_context", {"model": "gpt-5.6-sol"})
    total = [0, 0, 0]
    for second, kinds, *counts in events:
        names = ("input_tokens", "output_tokens", "cache_write_input_tokens")
        usage = dict(zip(names, counts, strict=True))
        if "record" in kinds:
            record = {"thread_id": session, "response_id": f"resp_{second}", "usage": usage}
            yield line(second, "token_usage_record", record)
        if "count" in kinds:
            total = [before + count for before, count in zip(total, counts, strict=True)]
        if "count" in kinds or "repeated" in kinds:
            info = {"last_token_usage": usage}
            info |= {"total_token_usage": dict(zip(names, total, strict=True))}
            yield line(second, "event_msg", {"type": "token_count", "info": info})


A, B, C = (5, "count", 1_000, 10, 0), (15, "count", 2_000, 20, 0), (600, "count", 3_000, 30, 0)
COPIED = [(300, *event[1:]) for event in (A, B)]
OWN = (320, "count", 4_000, 40, 0)
SPAWNED = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": PARENT}}}}
PLACEHOLDER = {"input_tokens": 3, "cache_read_input_tokens": 25_962, "output_tokens": 1}

REPORTS = {
    "ccusage/ccusage#950, steipete/CodexBar#3524, egoist/waku#38, chattymin/PokeTokenBar#128": (
        {
            PARENT: codex(PARENT, 0, A, B, C),
            CHILD: codex(CHILD, 300, *COPIED, OWN, copied=[PARENT], forked_from_id=PARENT),
        },
        "6 calls, 13 000 tokens in: a fork repeats its parent",
        "4 calls, 10 000 tokens in",
        (4, 10_000, 100, 0),
    ),
    "getagentseal/codeburn#1383": (
        {
            PARENT: codex(PARENT, 0, *((at, "record count", *more) for at, _, *more in (A, B))),
            CHILD: codex(CHILD, 300, A, B, OWN, **SPAWNED),
        },
        "5 calls, 10 000 tokens in: a subagent repeats its parent, without records",
        "3 calls, 7 000 tokens in",
        (3, 7_000, 70, 0),
    ),
    "steipete/CodexBar#2193, farion1231/cc-switch#6796": (
        {
            PARENT: codex(PARENT, 0, A, B, C),
            CHILD: codex(CHILD, 300, OWN, forked_from_id=PARENT),
        },
        "3 calls: a subagent that started from nothing was taken for a copy",
        "4 calls, 10 000 tokens in",
        (4, 10_000, 100, 0),
    ),
    "openai/codex#47003": (
        {
            PARENT: codex(
                PARENT,
                0,
                (5, "record count", 1_000, 10, 0),
                (8, "record", 9_000, 500, 0),
                (8, "repeated", 1_000, 10, 0),
                (15, "record count", 2_000, 20, 0),
            )
        },
        "2 calls, 3 000 tokens in: the call that compacts a thread has no count",
        "3 calls, 12 000 tokens in",
        (3, 12_000, 530, 0),
    ),
    "antiburn/antiburn#404, xiufengsun/TokenTracker#652": (
        {PARENT: codex(PARENT, 0, (5, "record", 1_000, 10, 0))},
        "nothing: new logs have records alone",
        "1 call, 1 000 tokens in",
        (1, 1_000, 10, 0),
    ),
    "Chorus-AIDLC/Chorus#447, MiniMax-AI-Dev/parsar#411": (
        {PARENT: codex(PARENT, 0, (5, "count", 1_000, 10, 800))},
        "no cache writes",
        "800 tokens written",
        (1, 1_000, 10, 800),
    ),
    "steipete/CodexBar#1002": (
        {"s1": [claude()], "s2": [claude(sessionId="s2"), claude("msg_2", sessionId="s2")]},
        "3 answers: a forked session repeats the other's",
        "2 answers",
        (2, 4_208, 14, 200),
    ),
    "ccusage/ccusage#913": (
        {"s1": [claude()], "agent-a1": [claude(requestId="req_2", isSidechain=True, agentId="a1")]},
        "2 answers: what /btw repeats has another request id",
        "1 answer",
        (1, 2_104, 7, 100),
    ),
    "ccusage/ccusage#1635": (
        {
            name: [claude("msg_1", 100 * n, at=f"2026-11-0{n}T12:00:00Z", sessionId=name)]
            for n, name in enumerate(("s1", "s2"), start=1)
        },
        "1 answer: a local server numbers the answers of each session from 1",
        "2 answers",
        (2, 4_208, 300, 200),
    ),
    "anthropics/claude-code#22671, ccusage/ccusage#866": (
        {"s1": [claude(message_more={"stop_reason": None, "usage": PLACEHOLDER})]},
        "1 token out, as if that were final",
        "`partial`: the log has no end",
        (1, 25_965, 1, 0),
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_logs_of_a_public_report(home, engine, name):
    logs, _, ours, right = REPORTS[name]
    for stem, lines in logs.items():
        place = ".codex/sessions/rollout-" if stem in (PARENT, CHILD) else ".claude/projects/p/"
        path = home / f"{place}{stem}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run()
    names = "sum(input_tokens), sum(output_tokens), coalesce(sum(cache_write_tokens), 0)"
    assert rows(engine, f"SELECT count(*), {names} FROM requests") == [right]
    sources = {source for (source,) in rows(engine, "SELECT usage_source FROM requests")}
    assert sources == {"partial" if "partial" in ours else "reported"}


def test_the_page_has_a_row_for_each_report():
    text = PAGE.read_text(encoding="utf-8")
    for name, (_, theirs, ours, _) in REPORTS.items():
        links = ", ".join(
            f"[{each}](https://github.com/{each.replace('#', '/issues/')})"
            for each in name.split(", ")
        )
        assert f"| {links} | {theirs} | {ours} |" in text
