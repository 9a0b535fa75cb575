"""Pure. Which request of the ledger a logged answer is: read before, a copy of one in another
session, or one that was recorded on the wire."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from addon.framing import json_values
from addon.parts.agent_logs.call import THREAD_COUNTS, THREADS, LoggedCall
from ledger.maintenance.known import BookedAnswer
from ledger.maintenance.same_answer import (
    APART_MAX,
    figures_of,
    is_its_wire,
    is_near,
    names_of,
)


class KnownAnswers:
    """Answers of a ledger, and of the import that runs.

    An id alone decides nothing: servers repeat ids. Two answers of a log with one response id are
    one if their lines are of one time, or if their figures are the same (a copy that was stamped
    anew). Where one side has no response id, session, figures and time decide together; for a
    request that was recorded without a session, its agent does in the place of the session, and its
    model if nothing of its wire told the agent (Cline, Continue), within a shorter time. What both
    sides lack is no match. What a fork copied under a new id is the recorded request of another
    session that has its figures at its time.
    """

    def __init__(self, answers: Iterable[BookedAnswer]) -> None:
        self._by: dict[tuple[object, ...], list[BookedAnswer]] = defaultdict(list)
        self._taken: dict[str, str] = {}
        """Recorded answers that were found without an id -> the session of the log."""
        for answer in answers:
            self.add(answer)

    def add(self, answer: BookedAnswer) -> None:
        """Know a further answer."""
        self._by["id", answer.id].append(answer)
        if answer.response_id is not None:
            self._by["response", answer.response_id].append(answer)
        figures = figures_of(answer)
        for session in {answer.session_id, *_threads(answer)} - {None}:
            self._by[session, figures].append(answer)
        if answer.session_id is None:
            self._by["agent", answer.agent, figures].append(answer)
        if not answer.is_import:
            self._by["recorded", answer.agent, figures].append(answer)
        self._by[answer.agent, answer.opened_at, figures].append(answer)

    def find(self, call: LoggedCall) -> BookedAnswer | None:
        """The request that a logged answer is; None: a new one. A recorded request that has no id
        in common with the log is only one answer."""
        sessions, figures = session_names(call), call.figures
        candidates: list[BookedAnswer] = [
            *self._by.get(("id", call.exchange_id), ()),
            *self._by.get(("response", call.response_id or ""), ()),
            *(answer for name in sessions for answer in self._by.get((name, figures), ())),
            *self._by.get(("agent", call.agent, figures), ()),
            *self._by.get(("agent", None, figures), ()),
            *self._by.get((call.agent, call.at, figures), ()),
        ]
        for answer in candidates:
            if answer.id == call.exchange_id:
                return answer
            if answer.id in self._taken:
                continue
            if answer.is_import:
                if _is_same_import(answer, call):
                    return answer
                continue
            begins, ends = answer.opened_at - APART_MAX, answer.settled_at + APART_MAX
            if not (begins <= call.ended_at and call.at <= ends):
                # A copy that was stamped anew has the id and the figures.
                is_copy = _have_ids(answer, call) and answer.response_id == call.response_id
                if is_copy and None not in figures and figures_of(answer) == figures:
                    return answer
                continue
            if _have_ids(answer, call):
                if answer.response_id == call.response_id:
                    return answer
            elif figures_of(answer) == figures and is_its_wire(answer, answer_of(call), sessions):
                self._taken[answer.id] = call.session_id
                return answer
        return self._copied(call, sessions) if call.copies_renew_ids else None

    def _copied(self, call: LoggedCall, sessions: Collection[str]) -> BookedAnswer | None:
        """The recorded request of another session of which a fork's log has a copy."""
        for agent in (call.agent, None):
            for answer in self._by.get(("recorded", agent, call.figures), ()):
                session = answer.session_id or self._taken.get(answer.id)
                is_other = session is not None and session not in sessions
                is_model = agent is not None or answer.model == call.model
                if (
                    is_other
                    and is_model
                    and None not in call.figures
                    and not _have_ids(answer, call)
                    and is_near(answer, answer_of(call))
                ):
                    return answer
        return None


def session_names(call: LoggedCall) -> list[str]:
    """The names that the session of a call may have."""
    return names_of(call.agent, (call.session_id, call.log_session_id, *call.threads))


def _is_same_import(answer: BookedAnswer, call: LoggedCall) -> bool:
    has_figures = figures_of(answer) == call.figures
    at_its_time = answer.opened_at <= call.ended_at and call.at <= answer.settled_at
    in_session = answer.session_id in (call.session_id, call.log_session_id)
    if _have_ids(answer, call):
        is_same = answer.response_id == call.response_id and (has_figures or at_its_time)
    elif at_its_time and (in_session or call.copies_renew_ids):
        is_same = has_figures
    else:
        # One thread of Codex made both calls; a fork's log may not tell which thread it was.
        is_same = has_figures and bool(set(_threads(answer)) & set(call.threads))
        stated = _stated(answer)
        if call.copied_until is None:  # version 0.2 did not keep the sum
            is_same = is_same and stated.get(THREAD_COUNTS, "") == call.counts
        else:
            # What a parent did after the fork is not in the fork's history.
            is_before = THREADS in stated or answer.opened_at <= call.copied_until
            has_sum = stated.get(THREAD_COUNTS, call.counts) == call.counts
            is_same = is_same and is_before and has_sum
    return is_same and answer.agent == call.agent


def answer_of(call: LoggedCall) -> BookedAnswer:
    """A call that is being booked, as an answer of the ledger."""
    return BookedAnswer(
        id=call.exchange_id,
        is_import=True,
        agent=call.agent,
        response_id=call.response_id,
        session_id=call.session_id,
        opened_at=call.at,
        settled_at=call.completed_at or call.ended_at,
        usage_source=call.usage_source,
        input_tokens=call.usage.input_tokens,
        cache_read_tokens=call.usage.cache_read_tokens,
        cache_write_tokens=call.usage.cache_write_tokens,
        output_tokens=call.usage.output_tokens,
        model=call.model,
        usage_json=json_values.dumps(dict(call.beside)),
    )


def _have_ids(answer: BookedAnswer, call: LoggedCall) -> bool:
    return answer.response_id is not None and call.response_id is not None


def _stated(answer: BookedAnswer) -> dict[str, Any]:
    if answer.agent != "codex" or not answer.is_import:
        return {}
    return json_values.loads((answer.usage_json or "").encode()) or {}


def _threads(answer: BookedAnswer) -> list[str]:
    threads = _stated(answer).get(THREADS)
    return [str(each) for each in (threads if isinstance(threads, list) else [answer.session_id])]
