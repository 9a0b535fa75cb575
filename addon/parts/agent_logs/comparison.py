"""Pure. What agents' own logs miss: the messages of each session that was logged or recorded on the
wire, and how the figures of the same messages differ."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from addon.parts.agent_logs.call import LoggedCall
from addon.parts.agent_logs.matching import KnownAnswers, answer_of, session_names
from ledger.maintenance.known import BookedAnswer
from ledger.maintenance.same_answer import FIGURES
from ledger.model.usage import sum_of

type _Session = tuple[str, str | None]
"""An agent and its session."""
type Figures = Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionComparison:
    """One session of an agent. Input includes cached tokens; None: nothing states it."""

    agent: str
    session: str | None
    """None: recorded without a session."""
    messages_log: int
    """All in the log; of `messages_wire`, all that were recorded."""
    messages_wire: int
    messages_both: int
    log: Figures
    """Sums of the messages in both."""
    wire: Figures

    @property
    def factor(self) -> Mapping[str, float | None]:
        """log / wire; None: one of them is not known, or the wire has 0."""
        pairs = {name: (self.log[name], self.wire[name]) for name in FIGURES}
        return {
            name: round(log / wire, 4) if log is not None and wire else None
            for name, (log, wire) in pairs.items()
        }


def compare(
    calls: Iterable[LoggedCall], recorded: Iterable[BookedAnswer]
) -> list[SessionComparison]:
    """Each session that was logged or recorded, and the recorded requests of each agent that no
    session has. A message is in both by the rules of an import; else, without a common id, the
    nearest in the time of its request. A fork's copy belongs to the session that made the call."""
    logged = _by_session(calls)
    wire = [answer for answer in recorded if not answer.is_import]
    known, left = KnownAnswers(wire), {answer.id: answer for answer in wire}
    pairs: dict[_Session, list[tuple[LoggedCall, BookedAnswer]]] = defaultdict(list)
    alone: dict[_Session, list[LoggedCall]] = defaultdict(list)
    session_of: dict[tuple[str | None, str], _Session] = {}
    for session, its_calls in logged.items():
        for call in its_calls:
            for name in session_names(call):
                session_of.setdefault((call.agent, name), session)
                session_of.setdefault((None, name), session)
            same = known.find(call)
            if same is not None and left.pop(same.id, None) is not None:
                pairs[session].append((call, same))
            else:
                alone[session].append(call)
    rest: dict[_Session, list[BookedAnswer]] = defaultdict(list)
    for answer in left.values():
        named = session_of.get((answer.agent, answer.session_id or ""))
        if named is not None or answer.agent is not None:
            rest[named or (answer.agent or "", answer.session_id)].append(answer)
    for session, its_calls in alone.items():
        for call in its_calls:
            in_time = [
                answer
                for answer in rest.get(session, ())
                if not (call.response_id and answer.response_id)
                and answer.opened_at <= call.ended_at
            ]
            if in_time:
                nearest = min(in_time, key=lambda answer: abs(answer.settled_at - call.ended_at))
                rest[session].remove(nearest)
                pairs[session].append((call, nearest))
    return [
        SessionComparison(
            agent=session[0],
            session=session[1],
            messages_log=len(logged.get(session, ())),
            messages_wire=len(pairs[session]) + len(rest[session]),
            messages_both=len(pairs[session]),
            log={
                name: sum_of(*(getattr(call.usage, name) for call, _ in pairs[session]))
                for name in FIGURES
            },
            wire={
                name: sum_of(*(getattr(answer, name) for _, answer in pairs[session]))
                for name in FIGURES
            },
        )
        for session in sorted({*logged, *rest}, key=lambda each: (each[0], each[1] or ""))
    ]


def _by_session(calls: Iterable[LoggedCall]) -> dict[_Session, list[LoggedCall]]:
    """The answers of each session, each once, with its fullest line; without sums, which are no
    messages."""
    found: dict[_Session, dict[str, LoggedCall]] = defaultdict(dict)
    known, session_of = KnownAnswers(()), {}
    for call in calls:
        if call.is_sum:
            continue
        before = known.find(call)
        if before is None:
            known.add(answer_of(call))
            session_of[call.exchange_id] = call.agent, call.session_id
            found[call.agent, call.session_id][call.exchange_id] = call
        elif (kept := found[session_of[before.id]])[before.id].fullness < call.fullness:
            kept[before.id] = call
    return {session: list(kept.values()) for session, kept in found.items()}
