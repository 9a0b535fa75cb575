"""A log that has grown is read from where it ended, and what is booked does not tell: cut anywhere,
with answers, copies and sums whose lines lie on both sides of the cut."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from addon.parts.agent_logs import booking, files
from addon.parts.agent_logs.unchanged import UnchangedLogs
from ledger.store import db
from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import PATHS, SESSION, claude
from tests.addon.parts.agent_logs.test_sums import HAIKU, cost_state

OTHER = SESSION.replace("0199", "0200")
BEGIN = datetime(2026, 11, 2, 12, tzinfo=UTC)
FIGURES = (
    "response_id, model, usage_source, input_tokens, output_tokens, cache_read_tokens, cost_usd"
)
FACTS = f"""{FIGURES}, id, opened_at, settled_at, session_id, service_tier, project, git_branch,
    user_agent, finish_reason, tool_calls"""


@pytest.fixture
def starts(monkeypatch):
    """The bytes that were passed over, for each log that was read."""
    found = []

    def read(agent, path, skipped, start=0):
        found.append(start)
        return original(agent, path, skipped, start)

    original = files.read
    monkeypatch.setattr(booking, "read", read)
    return found


def answer(number, dice):
    """The lines of an answer: of some the last, which has more, comes after those of others."""
    at = BEGIN + timedelta(minutes=dice.choice([2, 2, 50]) * number)
    for place in range(dice.choice([1, 2, 3])):
        is_late = place == 2
        moment = at + timedelta(seconds=place + 200 * is_late)
        line = claude(
            f"msg_{number}",
            [2, 90, 400][place] + number,
            at=moment.isoformat(),
            requestId=f"req_{number}",
            block={"type": "tool_use", "id": f"t{number}-{place}", "name": "Bash"},
            message_more={"stop_reason": "tool_use" if place else None},
        )
        yield number + 2 * is_late, line


def logs_of(dice):
    """A session and a fork of it, which copies its first lines."""
    placed = [each for number in range(12) for each in answer(number, dice)]
    lines = [line for _, line in sorted(placed, key=lambda each: each[0])]
    copied = [line | {"sessionId": OTHER} for line in lines[: dice.randrange(len(lines))]]
    own = [line for number in (50, 51, 52) for _, line in answer(number, dice)]
    fork = copied + [line | {"sessionId": OTHER} for line in own]
    if dice.random() < 0.3:
        lines.insert(dice.randrange(len(lines)), cost_state(**{HAIKU: 60_000}))
    return {
        PATHS["claude-code"]: lines,
        PATHS["claude-code"].replace(SESSION, OTHER): fork,
    }


def booked(url, facts):
    with db.disposing(db.ensure(url)) as engine, engine.connect() as connection:
        return connection.execute(
            sa.text(f"SELECT {facts} FROM requests WHERE output_tokens ORDER BY {facts}")
        ).all()


@pytest.mark.parametrize("seed", range(8))
def test_what_is_booked_does_not_depend_on_where_a_log_ended(
    seed, home, tmp_path, starts, monkeypatch
):
    dice = random.Random(seed)
    texts = {
        name: "".join(json.dumps(line) + "\n" for line in lines).encode()
        for name, lines in logs_of(dice).items()
    }
    ends = {}
    for name, text in texts.items():
        breaks = [place + 1 for place, byte in enumerate(text) if byte == ord("\n")]
        anywhere = [dice.randrange(len(text)), *dice.choices(breaks, k=3)]
        ends[name] = [*sorted(anywhere), len(text)]
    urls = [f"sqlite:///{tmp_path / name}.sqlite3" for name in ("grown", "whole", "fresh")]
    for step in range(5):
        for name, text in texts.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            before = ends[name][step - 1] if step else 0
            with (home / name).open("ab") as file:
                file.write(text[before : ends[name][step]])
        run("--ledger", urls[0], code=None)
        with monkeypatch.context() as patch:
            patch.setattr(UnchangedLogs, "before", lambda *_: None)
            run("--ledger", urls[1], code=None)
    run("--ledger", urls[2])
    assert booked(urls[0], FACTS) == booked(urls[1], FACTS)
    # Which session an answer is booked for depends on which log had it first.
    assert booked(urls[0], FIGURES) == booked(urls[2], FIGURES)
    assert any(starts)
