"""Pure. Whether an answer in an agent's log and a recorded request are one answer: by session, time
and figures, where a side has no response id."""

from collections.abc import Collection, Iterable
from datetime import timedelta

import orjson

from ledger.maintenance.known import BookedAnswer
from ledger.model.usage import BESIDE, count_of

FIGURES = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
"""What two accounts of an answer are compared by."""
STATED = BESIDE + "stated_tokens"
"""Beside the usage of a row with the rest of a sum: these figures of all of it."""
APART_WITHOUT_AGENT_MAX = timedelta(seconds=30)
APART_MAX = timedelta(minutes=10)
"""How far the log's time may be from the recorded one: an agent writes its log when an answer is
complete, and its clock is another than the proxy's if it runs on another machine."""


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
