"""Pure. Whether an answer in an agent's log and a recorded request are one answer: by session, time
and figures, where a side has no response id."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

import orjson
from msgspec.structs import replace

from ledger.maintenance.known import BookedAnswer
from ledger.model.usage import BESIDE, Usage, count_of

FIGURES = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
"""What two accounts of an answer are compared by."""
STATED = BESIDE + "stated_tokens"
"""Beside the usage of a row with the rest of a sum: these figures of all of it."""
APART_WITHOUT_AGENT_MAX = timedelta(seconds=30)
APART_MAX = timedelta(minutes=10)
"""How far the log's time may be from the recorded one: an agent writes its log when an answer is
complete, and its clock is another than the proxy's if it runs on another machine."""
REQUEST_MAX = timedelta(hours=1)
"""How long before the log's time a request that is looked for may have begun."""


def figures_of(answer: BookedAnswer) -> tuple[int | None, ...]:
    """What two accounts of one answer agree in. No word on the cache is none read from it."""
    return (answer.input_tokens, answer.output_tokens, answer.cache_read_tokens or 0)


def names_of(agent: str | None, sessions: Iterable[str | None]) -> list[str]:
    """The names of sessions on the wire: their own, and with the agent before them, as Qwen Code
    sends them."""
    names = [name for name in dict.fromkeys(sessions) if name]
    return [*names, *(f"{agent}:{name}" for name in names)]


def is_near(answer: BookedAnswer, logged: BookedAnswer) -> bool:
    """Whether both were at one time, by clocks of one machine."""
    return is_within(answer, logged, APART_WITHOUT_AGENT_MAX)


def is_its_wire(
    answer: BookedAnswer, logged: BookedAnswer, sessions: Collection[str | None]
) -> bool:
    """Whether a recorded request that has a logged answer's figures at its time is that answer, by
    session, by agent, or by the model if nothing of its wire told these."""
    if answer.session_id is not None:
        return answer.session_id in sessions
    if None in figures_of(logged):
        return False
    if answer.agent is not None:
        return answer.agent == logged.agent
    return is_near(answer, logged) and logged.model is not None and answer.model == logged.model


def is_within(answer: BookedAnswer, logged: BookedAnswer, apart: timedelta) -> bool:
    """Whether both were at one time, by clocks that far apart."""
    begins, ends = answer.opened_at - apart, answer.settled_at + apart
    return begins <= logged.settled_at and logged.opened_at <= ends


def stated_of(answer: BookedAnswer) -> list[int | None] | None:
    """The figures of a whole sum; None: it is no rest of one."""
    if not answer.is_import or STATED not in (answer.usage_json or ""):
        return None
    usage = orjson.loads(answer.usage_json or "")
    stated = usage.get(STATED) if isinstance(usage, dict) else None
    if not isinstance(stated, list) or len(stated) != len(FIGURES):
        return None
    return [count_of(each) for each in stated]


def rest_of(usage: Usage, left: Mapping[str, int | None]) -> Usage:
    """The usage of a sum with what is left of its figures. Its parts are cut to them, for answers
    may not state every part. What the rest cost is not stated."""
    rest = replace(usage, **left, reported_cost_picousd=None)
    read = _within(rest.cache_read_tokens, rest.input_tokens)
    not_read = None if rest.input_tokens is None else rest.input_tokens - (read or 0)
    written = _within(rest.cache_write_tokens, not_read)
    return replace(
        rest,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_5m_tokens=_within(rest.cache_write_5m_tokens, written),
        cache_write_1h_tokens=_within(rest.cache_write_1h_tokens, written),
        input_audio_tokens=_within(rest.input_audio_tokens, rest.input_tokens),
        reasoning_tokens=_within(rest.reasoning_tokens, rest.output_tokens),
        output_audio_tokens=_within(rest.output_audio_tokens, rest.output_tokens),
    )


def _within(part: int | None, total: int | None) -> int | None:
    return part if part is None or total is None else min(part, total)


def by_model(
    answers: Iterable[BookedAnswer], sums: Iterable[tuple[str | None, int | None]]
) -> Mapping[str | None, list[BookedAnswer]]:
    """The answers of the model of each sum, which are given with all input. One that no sum names,
    as under an alias, counts as of the greatest sum without answers, so that it is not booked
    twice."""
    models = [model for model, _ in sorted(sums, key=lambda one: -(one[1] or 0))]
    found: dict[str | None, list[BookedAnswer]] = defaultdict(list)
    others = []
    for answer in answers:
        if answer.model in models:
            found[answer.model].append(answer)
        else:
            others.append(answer)
    without = [model for model in models if model not in found] or models[:1]
    found[without[0]] += others
    return found
