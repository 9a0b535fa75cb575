"""Pure. What agents' own logs miss: the messages of each session that was logged and recorded on
the wire, and how the figures of the same messages differ."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from addon.parts.agent_logs.call import FIGURES, LoggedCall
from addon.parts.agent_logs.matching import KnownAnswers
from ledger.maintenance.known import BookedAnswer
from ledger.model.usage import sum_of

type Figures = Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionComparison:
    """One session of an agent. Input includes cached tokens; None: nothing states it."""

    agent: str
    session: str
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
    """The sessions that were logged and recorded. A message is in both by the rules of an import;
    else, without a common id, the nearest in the time of its request."""
    logged: dict[tuple[str, str], dict[str, LoggedCall]] = defaultdict(dict)
    for call in calls:
        kept = logged[call.agent, call.session_id].setdefault(call.exchange_id, call)
        if call.fullness > kept.fullness:
            logged[call.agent, call.session_id][call.exchange_id] = call
    wire: dict[str | None, list[BookedAnswer]] = defaultdict(list)
    for answer in recorded:
        if not answer.is_import:
            wire[answer.session_id].append(answer)
    found = []
    for (agent, session), by_id in sorted(logged.items()):
        answers = [answer for answer in wire[session] if answer.agent in (agent, None)]
        if not answers:
            continue
        known, pairs, alone = KnownAnswers(answers), [], []
        left = {answer.id: answer for answer in answers}
        for call in by_id.values():
            same = known.find(call)
            if same is None or left.pop(same.id, None) is None:
                alone.append(call)
            else:
                pairs.append((call, same))
        for call in alone:
            in_time = [
                answer
                for answer in left.values()
                if not (call.response_id and answer.response_id)
                and answer.opened_at <= call.ended_at
            ]
            if in_time:
                nearest = min(in_time, key=lambda answer: abs(answer.settled_at - call.ended_at))
                pairs.append((call, left.pop(nearest.id)))
        found.append(
            SessionComparison(
                agent=agent,
                session=session,
                messages_log=len(by_id),
                messages_wire=len(answers),
                messages_both=len(pairs),
                log={
                    name: sum_of(*(getattr(call.usage, name) for call, _ in pairs))
                    for name in FIGURES
                },
                wire={
                    name: sum_of(*(getattr(answer, name) for _, answer in pairs))
                    for name in FIGURES
                },
            )
        )
    return found
