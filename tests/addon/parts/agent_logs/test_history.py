"""Histories that agents copy, and imports that are interrupted: whatever is read in whatever order,
each call is booked once.

A model makes calls in sessions that fork from each other; the logs of the sessions repeat what they
inherited as each agent does. What the ledger has in the end is what the model made.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.addon.parts.agent_logs.importing import run
from tests.ledger.written import rows

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Call:
    number: int
    session: str
    at: datetime
    input: int
    output: int


@dataclass
class Session:
    name: str
    at: datetime
    parent: "Session | None" = None
    inherited: list[Call] = field(default_factory=list)
    own: list[Call] = field(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        return self.inherited + self.own


def made(seed: int) -> list[Session]:
    """Sessions and forks of forks. Calls of one size are common: two forks of one session often
    make the same."""
    dice = random.Random(seed)
    sessions: list[Session] = []
    at = BEGIN
    for number in range(dice.randint(2, 6)):
        at += timedelta(minutes=dice.randint(1, 9))
        parent = dice.choice([None, *sessions])
        inherited = [] if parent is None else [c for c in parent.calls if c.at < at]
        session = Session(f"019fa149-0000-7000-8000-{number:012}", at, parent, inherited)
        for _ in range(dice.randint(1, 5)):
            at += timedelta(seconds=dice.randint(20, 300))
            size = dice.choice([1_000, 2_000, 4_000])
            session.own.append(Call(dice.getrandbits(60), session.name, at, size, size // 100))
        sessions.append(session)
        at = dice.choice([at, session.at + timedelta(minutes=1)])
    return sessions


def text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def codex(session: Session, dice: random.Random) -> Iterator[dict[str, Any]]:
    """With the parent's times or the fork's, with its `session_meta` or without, with records or
    without."""
    is_restamped, has_records = dice.random() < 0.5, dice.random() < 0.5
    # The parent's log, whose `session_meta`s are copied with all else, or the events alone.
    line: list[Session] = [session]
    while line[-1].parent is not None:
        line.append(line[-1].parent)
    for each in line if dice.random() < 0.7 or len(line) > 2 else [session]:
        meta = {"id": each.name, "cwd": "/w/p", "originator": "codex_cli_rs"}
        if each.parent is not None:
            meta["forked_from_id"] = each.parent.name
        yield {"timestamp": text(session.at), "type": "session_meta", "payload": meta}
    yield {"timestamp": text(session.at), "type": "turn_context", "payload": {"model": "gpt-5.4"}}
    total: Counter[str] = Counter()
    for call in session.calls:
        is_own = call.session == session.name
        at = text(session.at if is_restamped and not is_own else call.at)
        usage = {"input_tokens": call.input, "cached_input_tokens": 0, "output_tokens": call.output}
        total.update(usage)
        if is_own and has_records:
            record = {"thread_id": session.name, "response_id": f"resp_{call.number}"}
            yield {
                "timestamp": at,
                "type": "token_usage_record",
                "payload": record | {"usage": usage},
            }
        info = {"last_token_usage": usage, "total_token_usage": dict(total)}
        count = {"type": "token_count", "info": info, "rate_limits": {"plan_type": "pro"}}
        for _ in range(dice.choice([1, 1, 2])):
            yield {"timestamp": at, "type": "event_msg", "payload": count}


def claude_code(session: Session, dice: random.Random) -> Iterator[dict[str, Any]]:
    """Copied lines keep ids and times; the session is the new one's, or still the old one's. What
    /btw copies has another request."""
    keeps_session, is_btw = dice.random() < 0.5, dice.random() < 0.3
    for call in session.calls:
        is_copy = call.session != session.name
        for done in (0, 1):
            usage = {"input_tokens": call.input, "output_tokens": call.output if done else 1}
            yield {
                "type": "assistant",
                "timestamp": text(call.at + timedelta(seconds=done)),
                "sessionId": call.session if keeps_session and is_copy else session.name,
                "requestId": f"req_{call.number}{'b' if is_btw and is_copy else ''}",
                "cwd": "/w/p",
                "message": {
                    "id": f"msg_{call.number}",
                    "model": "claude-sonnet-4-5",
                    "stop_reason": "end_turn" if done else None,
                    "usage": usage,
                },
            }


def pi(session: Session, dice: random.Random) -> Iterator[dict[str, Any]]:
    """A fork has the entries of its branch, some versions under new ids."""
    yield {"type": "session", "id": session.name, "cwd": "/w/p", "timestamp": text(session.at)}
    renamed = session.name[-2:] if dice.random() < 0.5 else ""
    for call in session.calls:
        usage = {"input": call.input, "output": call.output, "cacheRead": 0, "cacheWrite": 0}
        message = {"role": "assistant", "provider": "openai", "model": "gpt-5.4", "usage": usage}
        entry = {"type": "message", "id": f"{call.number:x}{renamed}", "timestamp": text(call.at)}
        yield entry | {"message": message}


type Writer = Callable[[Session, random.Random], Iterator[dict[str, Any]]]
FORMATS: dict[str, tuple[str, Writer]] = {
    "codex": (".codex/sessions/2026/11/02/rollout-{at:%Y-%m-%dT%H-%M-%S}-{name}.jsonl", codex),
    "claude-code": (".claude/projects/-w-p/{name}.jsonl", claude_code),
    "pi": (".pi/agent/sessions/--w-p--/{at:%Y-%m-%dT%H-%M-%S}_{name}.jsonl", pi),
}


def booked(engine) -> Counter[tuple[int, int]]:
    return Counter(rows(engine, "SELECT input_tokens, output_tokens FROM requests"))


SEEDS = [
    *range(3),
    *(pytest.param(seed, marks=pytest.mark.large) for seed in range(3, 8)),
    *(pytest.param(seed, marks=[pytest.mark.large, pytest.mark.nightly]) for seed in range(8, 20)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("agent", FORMATS)
def test_each_call_is_booked_once(home: Path, engine, agent: str, seed: int):
    dice = random.Random(seed)
    sessions = made(seed)
    wanted = Counter((c.input, c.output) for session in sessions for c in session.own)
    place, write = FORMATS[agent]
    logs: list[tuple[Path, str]] = []
    for session in sessions:
        path = home / place.format(at=session.at, name=session.name)
        lines = [json.dumps(line) + "\n" for line in write(session, dice)]
        path.parent.mkdir(parents=True, exist_ok=True)
        logs.append((path, "".join(lines)))
    # Some are read alone and before others, some while they are written, some have a copy.
    dice.shuffle(logs)
    for path, content in logs[: dice.randint(0, len(logs))]:
        path.write_text(content[: dice.choice([len(content), len(content) * 2 // 3])])
        run(path, code=None)
    for path, content in logs:
        path.write_text(content)
        if dice.random() < 0.3:
            path.with_name(f"{path.stem}-copy.jsonl").write_text(content)
    run("--agent", agent)
    assert booked(engine) == wanted
    assert ": 0 booked" in run("--agent", agent)
    assert booked(engine) == wanted
