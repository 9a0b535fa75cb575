"""Each break that is put into a session is named, and an unbroken session has none."""

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from ledger.model.segments import Kind, Part, Segment, pack, unpack
from ledger.store import db
from ledger.why.cache import Asked, Judge, Reason
from tests.ledger.written import NOON, put, reading, settled

EXPLICIT = ("anthropic.messages", "claude-sonnet-4-5")
OPENAI = ("openai.chat", "gpt-5")
GEMINI = ("google.generate", "gemini-2.5-flash")
MINUTE = timedelta(minutes=1)


class Session:
    """An agent's session against a cache that works as its provider's."""

    def __init__(self, seed: int, kind: tuple[str, str], turns: int = 6) -> None:
        self.chance = random.Random(seed)
        self.dialect, self.model = kind
        self.is_explicit = kind is EXPLICIT
        self.key = "key"
        self.tools = [self.part(Kind.TOOLS, f"tool{at}") for at in range(8)]
        self.system = [self.part(Kind.SYSTEM, "system") for _ in range(2)]
        self.messages = [self.part(Kind.MESSAGES, "user")]
        self.at = NOON
        self.marked = True
        self.cached: list[tuple[Any, list[Segment], Any, int]] = []
        self.turns = turns

    def part(self, kind: Kind, name: str, size: int = 0) -> Segment:
        digest = self.chance.randbytes(8)
        return Segment(kind, Part.TEXT, name, size or self.chance.randint(2_000, 9_000), 0, digest)

    def ask(self) -> Asked:
        parts = [*self.tools, *self.system, *self.messages]
        tokens = sum(each.size for each in parts) // 4
        read = 0
        life = MINUTE * (5 if self.is_explicit else 60)
        for who, old, at, size in self.cached:
            fits = who == (self.model, self.key) and parts[: len(old)] == old
            if fits and self.at - at <= life and (self.marked or not self.is_explicit):
                read = max(read, size if self.is_explicit else size // 128 * 128)
        if tokens >= 1024 and (self.marked or not self.is_explicit):
            self.cached.append(((self.model, self.key), parts, self.at, tokens))
        sent = [*parts]
        if self.is_explicit and self.marked:
            sent[-1] = sent[-1]._replace(breakpoint=1)
        write = tokens - read if self.is_explicit and self.marked and tokens >= 1024 else 0
        found = unpack(pack(sent))
        assert found is not None
        asked = Asked(
            id=f"{self.at}",
            opened_at=self.at,
            provider="p",
            dialect=self.dialect,
            model=self.model,
            key=self.key,
            session="s",
            segments=found,
            input_tokens=tokens,
            read_tokens=read,
            write_tokens=write,
        )
        self.at += MINUTE
        self.messages += [self.part(Kind.MESSAGES, name) for name in ("assistant", "user")]
        return asked


def changed(s: Session, at: int) -> None:
    s.tools[at] = s.part(Kind.TOOLS, s.tools[at].name)


def added(s: Session, at: int) -> None:
    s.tools.insert(at, s.part(Kind.TOOLS, "new"))


def removed(s: Session, at: int) -> None:
    del s.tools[at]


def moved(s: Session, at: int) -> None:
    s.tools.append(s.tools.pop(at))


def system(s: Session, at: int) -> None:
    s.system[at % 2] = s.part(Kind.SYSTEM, "system")


def message(s: Session, at: int) -> None:
    s.messages[at % 3] = s.part(Kind.MESSAGES, "user")


def expired(s: Session, _: int) -> None:
    s.at += 120 * MINUTE


def model(s: Session, _: int) -> None:
    s.model += "-other"


def account(s: Session, _: int) -> None:
    s.key = "another"


def no_breakpoint(s: Session, _: int) -> None:
    s.marked = False


def lost(s: Session, _: int) -> None:
    s.cached.clear()


BREAKS = {
    changed: (Reason.CHANGED, "changed", "tools"),
    added: (Reason.CHANGED, "added", "tools"),
    removed: (Reason.CHANGED, "removed", "tools"),
    moved: (Reason.CHANGED, "moved", "tools"),
    system: (Reason.CHANGED, "changed", "system"),
    message: (Reason.CHANGED, "changed", "messages"),
    expired: (Reason.EXPIRED, None, None),
    model: (Reason.MODEL, None, None),
    account: (Reason.ACCOUNT, None, None),
    lost: (Reason.UNEXPLAINED, None, None),
}


def verdicts(session: Session, breaks: Any = None, turn: int = 3, at: int = 0) -> list[Any]:
    judge, found = Judge(), []
    for number in range(session.turns):
        if breaks is not None and number == turn:
            breaks(session, at)
        found.append(judge.judge(session.ask()))
    return found


@pytest.mark.parametrize("kind", [EXPLICIT, OPENAI, GEMINI], ids=lambda kind: kind[1])
@pytest.mark.parametrize("breaks", BREAKS, ids=lambda each: each.__name__)
def test_each_break_is_named(breaks, kind):
    for seed in range(20):
        at = seed % 7
        found = verdicts(Session(seed, kind), breaks, at=at)
        assert [each.reason for each in found[:3]] == [Reason.FIRST, Reason.HIT, Reason.HIT]
        assert (found[3].reason, found[3].how, found[3].kind) == BREAKS[breaks]
        assert found[3].lost_tokens > 0
        assert [each.reason for each in found[4:]] == [Reason.HIT] * 2
        if BREAKS[breaks][2] == "tools":
            name = "new" if breaks is added else f"tool{at}"
            assert (found[3].name, found[3].segment) == (name, f"tools[{at}] {name}")


def test_a_breakpoint_that_is_missing_is_named():
    found = verdicts(Session(1, EXPLICIT), no_breakpoint)
    assert [each.reason for each in found[3:]] == [Reason.NO_BREAKPOINT] * 3


@pytest.mark.parametrize("kind", [EXPLICIT, OPENAI, GEMINI], ids=lambda kind: kind[1])
def test_an_unbroken_session_has_no_break(kind):
    for seed in range(100):
        found = verdicts(Session(seed, kind, turns=8))
        assert [each.reason for each in found] == [Reason.FIRST] + [Reason.HIT] * 7


def test_a_prompt_below_the_minimum_is_too_short():
    session = Session(1, OPENAI, turns=2)
    session.tools, session.system = [], []
    session.messages = [session.part(Kind.MESSAGES, "user", 400)]
    judge = Judge()
    first = judge.judge(session.ask())
    session.messages = [session.messages[0], session.part(Kind.MESSAGES, "user", 400)]
    assert [first.reason, judge.judge(session.ask()).reason] == [Reason.FIRST, Reason.TOO_SHORT]


def test_a_whole_long_session_has_no_break_where_older_messages_are_joined():
    found = verdicts(Session(1, OPENAI, turns=200))
    assert {each.reason for each in found[1:]} == {Reason.HIT}


def test_a_command_prints_the_causes(tmp_path):
    import typer

    from ledger.commands import why

    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    session = Session(1, OPENAI, turns=4)
    asked = []
    for turn in range(4):
        if turn == 2:
            changed(session, 4)
        asked.append(session.ask())
    with db.disposing(db.ensure(url)) as engine:
        for number, each in enumerate(asked):
            exchange = replace(
                settled(f"e{number}", at=each.opened_at),
                session_id="s",
                segments=pack(each.segments.parts),
            )
            read = reading(exchange)
            usage = replace(
                read.usage,
                input_tokens=each.input_tokens,
                cache_read_tokens=each.read_tokens,
            )
            put(engine, (exchange, replace(read, usage=usage), ()))
    app = typer.Typer()
    app.command()(why.cache)
    result = CliRunner().invoke(app, ["--ledger", url, "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    found = {(row["reason"], row["segment"], row["requests"]) for row in rows}
    assert found == {("changed", "tools[4] tool4", 1), ("hit", None, 2), ("first", None, 1)}
    assert rows[0]["reason"] == "changed"
    assert rows[0]["example"] == "e2"
    assert rows[0]["session"] == "s"
    assert rows[0]["tokens"] > 1_000
    table = CliRunner().invoke(app, ["--ledger", url, "--by", "reason"])
    assert "changed" in table.output
