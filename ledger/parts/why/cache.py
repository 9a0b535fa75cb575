"""Pure. Whether a request was served from the prompt cache, and if not, why.

A request is compared with the one that it continues, else with the last of its session. What that
one left in the cache (read and written, or its whole input where caching is automatic) is what this
one should have read.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from ledger.model.segments import DAY_ASKED, Kind, Segment, Segments, SegmentType
from ledger.parts.why.caches import Cache, cache_of

REQUESTS_MAX = 2_000
"""Requests of a session of which it is known that another continues them: without a session, those
of all users are one."""
REMEMBERED_SEGMENTS_MAX = 500_000
"""Segments that are remembered, of all sessions, at 230 bytes each. The session that asked longest
ago is forgotten first."""
_ANSWERS = ("assistant", "model")
_KIND_WORDS = {Kind.TOOLS: "tools", Kind.SYSTEM: "system", Kind.MESSAGES: "messages"}


class Reason(StrEnum):
    """Why a request read less from the cache than was in it."""

    HIT = "hit"
    CHANGED = "changed"
    EXPIRED = "expired"
    MODEL = "model"
    ACCOUNT = "account"
    TOO_SHORT = "too short"
    NO_BREAKPOINT = "no breakpoint"
    FIRST = "first"
    UNEXPLAINED = "unexplained"


_DIAGNOSES = {
    "model_changed": (Reason.MODEL, None),
    "tools_changed": (Reason.CHANGED, "tools"),
    "system_changed": (Reason.CHANGED, "system"),
    "messages_changed": (Reason.CHANGED, "messages"),
    "input_changed": (Reason.CHANGED, None),
}
"""What Anthropic and OpenAI say (https://platform.claude.com/docs/en/build-with-claude/
cache-diagnostics, https://developers.openai.com/api/docs/guides/prompt-caching/diagnostics.md, read
2026-11-23); it counts before what the segments show. Other words say that they do not know, or name
what no segment shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRequest:
    """A request that was answered."""

    id: str
    opened_at: datetime
    provider: str | None
    dialect: str
    model: str | None
    key: str | None
    session: str | None
    segments: Segments
    input_tokens: int
    read_tokens: int
    write_tokens: int
    account: str | None = None
    """Keyed hash of the organization or workspace that was billed; None: not known."""
    diagnosis: str | None = None
    """What the provider says that broke the cache, in its own word."""

    def shares_cache(self, other: "AskedRequest") -> bool:
        """Whether both have one cache, as far as it is known: that of an account, else of a key."""
        if self.account and other.account:
            return self.account == other.account
        return self.key == other.key

    @property
    def cache(self) -> Cache:
        """The cache that applied."""
        return cache_of(self.dialect, self.model, self.opened_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a request's prefix in the cache."""

    asked: AskedRequest
    reason: Reason
    lost_tokens: int = 0
    """Tokens that were in the cache, or could have been, and were not read from it."""
    how: str | None = None
    """changed, added, removed or moved."""
    kind: str | None = None
    """tools, system or messages."""
    name: str | None = None
    """The tool, or the role."""
    segment: str | None = None
    """Its place: `tools[12] grep`."""

    @property
    def text(self) -> str:
        """`changed: tools[12] grep added, 2,400 tokens not read from the cache`."""
        what = " ".join(each for each in (self.segment or self.kind, self.how) if each)
        lost = f"{self.lost_tokens:,} tokens not read from the cache" if self.lost_tokens else ""
        return ", ".join(
            each for each in (f"{self.reason}{f': {what}' if what else ''}", lost) if each
        )


class _Before:
    """An earlier request."""

    __slots__ = ("asked", "marks", "prefixes", "sizes")

    def __init__(self, asked: AskedRequest) -> None:
        self.asked = asked
        self.prefixes = asked.segments.prefixes()
        self.sizes = {each.digest: each.size for each in asked.segments.parts}
        self.marks = marks(asked.segments)

    @property
    def kept(self) -> bytes:
        """The prefix that the request left in the cache."""
        at = self.marks[-1][0] if self.marks and self.asked.cache.breakpoints else -1
        return self.prefixes[at] if self.prefixes else b""

    def shared_size(self, other: "_Before") -> int:
        """The size of the segments that both have."""
        return sum(self.sizes[digest] for digest in self.sizes.keys() & other.sizes.keys())

    def tokens(self, count: int) -> int:
        """The tokens of the first segments, as their share of the input by bytes."""
        parts = self.asked.segments.parts
        whole = sum(each.size for each in parts)
        size = sum(each.size for each in parts[:count])
        return self.asked.input_tokens * size // whole if whole else 0


def marks(segments: Segments) -> list[tuple[int, int]]:
    """The places of breakpoints, and their lifetimes."""
    found = [(at, each.breakpoint) for at, each in enumerate(segments.parts) if each.breakpoint]
    if segments.parts and 0 < segments.automatic < DAY_ASKED:
        found.append((len(segments.parts) - 1, segments.automatic))
    return found


class _Session:
    """The earlier requests of a session."""

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[object, ...], _Before] = OrderedDict()
        self.segments = 0

    def to_compare(self, now: _Before) -> _Before | None:
        """The request that this one continues, unless the last one of its owner and model shares
        more with it (a message of that one changed); else the last of the session. None for the
        session's first."""
        owner, requests = self._owner_of(now), reversed(self._requests.items())
        last = next((before for key, before in requests if key[: len(owner)] == owner), None)
        alike = [before for before in (self.continued_by(now), last) if before is not None]
        if alike:
            return max(alike, key=now.shared_size)
        return next(reversed(self._requests.values()), None)

    def continued_by(self, now: _Before) -> _Before | None:
        """The longest whole request that a request begins with, of the same owner and model."""
        owner = self._owner_of(now)
        found = (self._requests.get((*owner, prefix)) for prefix in reversed(now.prefixes))
        return next(filter(None, found), None)

    def add(self, now: _Before) -> None:
        """Remember a request; one that is repeated is remembered once."""
        key = (*self._owner_of(now), now.prefixes[-1])
        repeated = self._requests.pop(key, None)
        self._requests[key] = now
        self.segments += len(now.prefixes)
        if repeated is None and len(self._requests) > REQUESTS_MAX:
            _, repeated = self._requests.popitem(last=False)
        if repeated is not None:
            self.segments -= len(repeated.prefixes)

    @staticmethod
    def _owner_of(one: _Before) -> tuple[object, ...]:
        return one.asked.model, one.asked.account or one.asked.key


class Judge:
    """Judges requests in the order of their time."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str | None, str | None], _Session] = OrderedDict()
        self._segments = 0

    def judge(self, asked: AskedRequest) -> Verdict:
        """The verdict on the next request, which has segments."""
        key = (asked.provider, asked.session)
        session = self._sessions.setdefault(key, _Session())
        self._sessions.move_to_end(key)
        now = _Before(asked)
        verdict = _verdict(now, session.to_compare(now))
        self._segments -= session.segments
        session.add(now)
        self._segments += session.segments
        while self._segments > REMEMBERED_SEGMENTS_MAX:
            _, forgotten = self._sessions.popitem(last=False)
            self._segments -= forgotten.segments
        return verdict


def _verdict(now: _Before, before: _Before | None) -> Verdict:
    asked = now.asked
    reason, told = _DIAGNOSES.get(asked.diagnosis or "", (None, None))
    if before is None:
        if reason is None:
            reason = Reason.HIT if asked.read_tokens else Reason.FIRST
        return Verdict(asked=asked, reason=reason, kind=told)
    # The places after the longest prefix that both requests have, in this one and the earlier.
    places = {prefix: at for at, prefix in enumerate(before.prefixes)}
    new_at = old_at = 0
    for at in range(len(now.prefixes) - 1, -1, -1):
        if now.prefixes[at] in places:
            new_at, old_at = at + 1, places[now.prefixes[at]] + 1
            break
    if _is_another_question(now, before, new_at, old_at):
        return _of_another_question(now, before, new_at)
    # The tokens of the earlier request that were in the cache after it.
    earlier, cache = before.asked, before.asked.cache
    if cache.breakpoints:
        in_cache = earlier.read_tokens + earlier.write_tokens
    elif earlier.input_tokens < cache.tokens_min:
        in_cache = 0
    else:
        in_cache = earlier.input_tokens // cache.step * cache.step
    if not in_cache:
        return _never_cached(now, before)
    is_whole = before.kept in now.prefixes or new_at == len(now.prefixes)
    reusable = asked.input_tokens
    if not is_whole:
        # Up to the last segment that the earlier request had too, or that stands in the place of
        # one that it had.
        parts = asked.segments.parts
        shared = (at for at in range(len(parts) - 1, -1, -1) if parts[at].digest in before.sizes)
        reusable = now.tokens(max(next(shared, -1), new_at) + 1)
    lost = max(0, min(in_cache, reusable) - asked.read_tokens)
    missing = lost if is_whole else in_cache - asked.read_tokens
    if missing <= asked.cache.tolerance:
        return Verdict(asked=asked, reason=Reason.HIT)
    reason = reason or _reason(now, before, before.kept)
    found = Verdict(asked=asked, reason=reason, lost_tokens=lost, kind=told)
    # Where old_at is beyond the earlier request, the provider alone sees a difference.
    if reason is Reason.CHANGED and old_at < len(before.prefixes):
        how, kind, name, segment = _difference(before, now, new_at, old_at)
        if told in (None, kind):
            found = replace(found, how=how, kind=kind, name=name, segment=segment)
    return found


def _reason(now: _Before, before: _Before, kept: bytes) -> Reason:
    """Why a request did not read the prefix that an earlier one had left."""
    asked, cache = now.asked, before.asked.cache
    if asked.model != before.asked.model:
        return Reason.MODEL
    if asked.opened_at - before.asked.opened_at > cache.lifetime(before.asked.segments.lifetime):
        return Reason.EXPIRED
    if kept not in now.prefixes:
        return Reason.CHANGED
    if cache.breakpoints:
        end = now.prefixes.index(kept)
        if not any(0 <= at - end < cache.look_back for at, _ in now.marks):
            return Reason.NO_BREAKPOINT
    return Reason.UNEXPLAINED if asked.shares_cache(before.asked) else Reason.ACCOUNT


def _is_another_question(now: _Before, before: _Before, new_at: int, old_at: int) -> bool:
    """Whether a request does not go on with what the earlier one asked: after what both share,
    no message of the earlier one follows, and nothing was answered yet, or both were.

    So begin another conversation with one system prompt, the task of a subagent, a conversation
    after its compaction, and a question that is asked anew; so go on conversations at a time.
    """
    olds = before.asked.segments.parts[old_at:]
    rest = [each for each in now.asked.segments.parts[new_at:] if each.kind is Kind.MESSAGES]
    if not (olds and rest) or not {each.digest for each in olds}.isdisjoint(
        each.digest for each in rest
    ):
        return False
    # Both were answered, each in its way; or others ask without a session, and this one goes on
    # with what is not remembered.
    is_answered = any(map(_is_answer, rest))
    return not is_answered or any(map(_is_answer, olds)) or now.asked.session is None


def _is_answer(one: Segment) -> bool:
    return one.type not in (SegmentType.TEXT, SegmentType.IMAGE) or one.name in _ANSWERS


def _of_another_question(now: _Before, before: _Before, shared: int) -> Verdict:
    """The verdict where only the beginning of an earlier request is asked again."""
    asked, cache = now.asked, before.asked.cache
    if asked.read_tokens:
        return Verdict(asked=asked, reason=Reason.HIT)
    end = shared
    if cache.breakpoints:
        end = max(
            (at + 1 for at, _ in before.marks if before.prefixes[at] in now.prefixes), default=0
        )
    is_in_head = now.asked.segments.parts[shared].kind is not Kind.MESSAGES
    if not end or is_in_head or cache.ends:
        return Verdict(asked=asked, reason=Reason.FIRST)
    tokens = now.tokens(end)
    if tokens - cache.tolerance < cache.tokens_min:
        return Verdict(asked=asked, reason=Reason.TOO_SHORT)
    reason = _reason(now, before, now.prefixes[end - 1])
    return Verdict(asked=asked, reason=reason, lost_tokens=tokens // cache.step * cache.step)


def _never_cached(now: _Before, before: _Before) -> Verdict:
    """Nothing was in the cache although the requests share content."""
    asked = now.asked
    if asked.read_tokens:
        return Verdict(asked=asked, reason=Reason.HIT)
    if min(asked.input_tokens, before.asked.input_tokens) < asked.cache.tokens_min:
        return Verdict(asked=asked, reason=Reason.TOO_SHORT)
    if asked.cache.breakpoints and not before.marks:
        total = sum(each.size for each in before.asked.segments.parts) or 1
        lost = before.asked.input_tokens * before.shared_size(now) // total
        return Verdict(asked=asked, reason=Reason.NO_BREAKPOINT, lost_tokens=lost)
    return Verdict(asked=asked, reason=Reason.UNEXPLAINED)


def _difference(
    before: _Before, now: _Before, new_at: int, old_at: int
) -> tuple[str, str, str, str]:
    """How the first segment that differs does: (how, kind, name, place)."""
    olds, news = before.asked.segments.parts, now.asked.segments.parts
    old, new = olds[old_at], news[new_at] if new_at < len(news) else None
    if new is None:
        return _named("removed", olds, old_at)
    left = Counter(each.digest for each in olds[old_at:])
    come = Counter(each.digest for each in news[new_at:])
    old_stays = come[old.digest] >= left[old.digest]
    new_was = left[new.digest] >= come[new.digest]
    if old_stays and new_was:
        to = _place(news, new_at, old.digest) - new_at
        since = _place(olds, old_at, new.digest) - old_at
        return _named("moved", olds, old_at) if to >= since else _named("moved", news, new_at)
    if old_stays:
        return _named("added", news, new_at)
    if new_was:
        return _named("removed", olds, old_at)
    return _named("changed", news, new_at)


def _place(parts: Sequence[Segment], start: int, digest: bytes) -> int:
    return next(at for at in range(start, len(parts)) if parts[at].digest == digest)


def _named(how: str, parts: Sequence[Segment], at: int) -> tuple[str, str, str, str]:
    one = parts[at]
    kind = _KIND_WORDS[one.kind]
    number = sum(each.kind == one.kind for each in parts[:at])
    name = "older messages" if one.type is SegmentType.JOINED else one.name
    return how, kind, name, f"{kind}[{number}] {name}".rstrip()
