"""Sessions of an agent against prompt caches that work as their providers document, and what can
break them."""

import itertools
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from ledger.model.segments import SEGMENTS_MAX, Kind, Segment, Segments, SegmentType, pack, unpack
from ledger.parts.why.cache import AskedRequest, Reason
from tests.ledger.written import NOON

MINUTE = timedelta(minutes=1)


class Provider(NamedTuple):
    dialect: str
    model: str
    least: int
    step: int = 128
    minutes: int = 60
    breakpoint: int = 0
    """0: caching is automatic; else the lifetime that the session's breakpoints ask for."""
    at_top: bool = False
    ends: bool = False
    """Only whole earlier requests are found in the cache."""


PROVIDERS = {
    "anthropic": Provider("anthropic.messages", "claude-sonnet-4-5", 1024, 1, 5, 1),
    "anthropic_hour": Provider("anthropic.messages", "claude-opus-4-5", 4096, 1, 60, 2),
    "anthropic_automatic": Provider("anthropic.messages", "claude-opus-5", 512, 1, 5, 1, True),
    "bedrock": Provider("bedrock.converse", "eu.anthropic.claude-haiku-4.5", 4096, 1, 5, 1),
    "openai": Provider("openai.chat", "gpt-5", 1024),
    "responses": Provider("openai.responses", "gpt-5.1-codex", 1024),
    "gemini": Provider("google.generate", "gemini-2.5-flash", 2048),
    "gpt-5.6": Provider("openai.responses", "gpt-5.6-sol", 1024, minutes=30, ends=True),
    "deepseek": Provider("openai.chat", "deepseek-chat", 0, 64, ends=True),
    "another": Provider("openai.chat", "kimi-k2", 1024),
}


class Session:
    """Asks turn by turn; `broken` things stay as they are after a break."""

    def __init__(self, seed: int, provider: Provider, turns: int = 6) -> None:
        self.chance = random.Random(seed)
        self.provider = provider
        self.model = provider.model
        self.key = "key"
        self.account: str | None = None
        self.tools = [
            self.part(Kind.TOOLS, f"tool{at}") for at in range(self.chance.randint(8, 16))
        ]
        self.system = [self.part(Kind.SYSTEM, "system") for _ in range(2)]
        self.messages = [self.part(Kind.MESSAGES, "user")]
        self.at = NOON
        self.marked = True
        self.cached: list[list[Any]] = []
        self.turns = turns

    def part(self, kind: Kind, name: str, size: int = 0) -> Segment:
        digest = self.chance.randbytes(8)
        return Segment(
            kind, SegmentType.TEXT, name, size or self.chance.randint(2_000, 9_000), 0, digest
        )

    def ask(self) -> AskedRequest:
        one = self.provider
        parts = [*self.tools, *self.system, *self.messages]
        tokens = sum(each.size for each in parts) // 4
        owner = (self.model, self.account or self.key)
        caches = self.marked or not one.breakpoint
        read = 0
        for entry in self.cached:
            who, old, at, size = entry
            in_reach = not one.breakpoint or len(parts) - len(old) < 20
            alive = self.at - at <= MINUTE * one.minutes
            if not (caches and who == owner and alive and in_reach):
                continue
            equal = (a == b for a, b in zip(old, parts, strict=False))
            shared = sum(itertools.takewhile(bool, equal))
            if shared == len(old):
                read = max(read, size // one.step * one.step)
                entry[2] = self.at
            elif (
                not one.breakpoint and not one.ends
            ):  # automatic caches match as far as the prompts are equal
                size = sum(each.size for each in parts[:shared]) // 4
                read = max(read, size // one.step * one.step if size >= one.least else 0)
        if tokens >= one.least and caches:
            self.cached.append([owner, parts, self.at, tokens])
        sent = [*parts]
        if one.breakpoint and self.marked and not one.at_top:
            sent[-1] = sent[-1]._replace(breakpoint=one.breakpoint)
        is_written = one.breakpoint and self.marked and tokens >= one.least
        automatic = one.breakpoint if one.at_top and self.marked else 0
        found: Segments | None = Segments(tuple(sent), automatic)
        if len(sent) > SEGMENTS_MAX:  # older messages are joined
            found = unpack(pack(sent, automatic=automatic))
        assert found is not None
        asked = AskedRequest(
            id=f"{self.at}",
            opened_at=self.at,
            provider="p",
            dialect=one.dialect,
            model=self.model,
            key=self.key,
            account=self.account,
            session="s",
            segments=found,
            input_tokens=tokens,
            read_tokens=read,
            write_tokens=tokens - read if is_written else 0,
        )
        self.at += MINUTE
        self.messages += [self.part(Kind.MESSAGES, name) for name in ("assistant", "user")]
        return asked


class Break(NamedTuple):
    do: Callable[[Session, int], None]
    reason: Reason
    how: str | None = None
    kind: str | None = None
    marked_only: bool = False
    stays: bool = False
    """Later turns are broken, too."""


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


def shortened(s: Session, at: int) -> None:
    del s.messages[at % 3]


def expired(s: Session, _: int) -> None:
    s.at += 120 * MINUTE


def model(s: Session, _: int) -> None:
    s.model += "-other"


def account(s: Session, _: int) -> None:
    s.key = "another"


def organization(s: Session, _: int) -> None:
    s.key, s.account = "another", "another"


def no_breakpoint(s: Session, _: int) -> None:
    s.marked = False


def far_breakpoint(s: Session, _: int) -> None:
    s.messages += [s.part(Kind.MESSAGES, "user") for _ in range(20)]


def lost(s: Session, _: int) -> None:
    s.cached.clear()


BREAKS = (
    Break(changed, Reason.CHANGED, "changed", "tools"),
    Break(added, Reason.CHANGED, "added", "tools"),
    Break(removed, Reason.CHANGED, "removed", "tools"),
    Break(moved, Reason.CHANGED, "moved", "tools"),
    Break(system, Reason.CHANGED, "changed", "system"),
    Break(message, Reason.CHANGED, "changed", "messages"),
    Break(shortened, Reason.CHANGED, "removed", "messages"),
    Break(expired, Reason.EXPIRED),
    Break(model, Reason.MODEL),
    Break(account, Reason.ACCOUNT),
    Break(organization, Reason.ACCOUNT),
    Break(no_breakpoint, Reason.NO_BREAKPOINT, marked_only=True, stays=True),
    Break(far_breakpoint, Reason.NO_BREAKPOINT, marked_only=True),
    Break(lost, Reason.UNEXPLAINED),
)
