"""Database. What a log states in sums alone, as the difference to the answers that are known.

A session and a model are one row: what the session used, less what the ledger has of its answers,
recorded or imported. When answers come later the row gets a further reading, down to nothing.
Of a log that has sums alone (Droid), recorded requests whose wire told neither session nor agent
are its answers if those of the model in its time have exactly what is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from addon.parts.agent_logs.call import LoggedCall
from addon.parts.agent_logs.matching import session_names
from ledger.maintenance.known import BookedAnswer, KnownExchanges, booked_answers
from ledger.maintenance.same_answer import (
    APART_MAX,
    FIGURES,
    REQUEST_MAX,
    STATED,
    by_model,
    rest_of,
)


def fullest(calls: Iterable[LoggedCall]) -> list[LoggedCall]:
    """The sums, one for each session and model: several logs may state it."""
    found: dict[str, LoggedCall] = {}
    for call in calls:
        before = found.setdefault(call.exchange_id, call)
        if call.fullness > before.fullness:
            found[call.exchange_id] = call
    return list(found.values())


def differences(
    places: Sequence[KnownExchanges],
    sums: Sequence[LoggedCall],
    copied: Mapping[tuple[str, str], Sequence[BookedAnswer]],
) -> list[tuple[LoggedCall, BookedAnswer | None]]:
    """Each sum with what is left of it, and the row that has it so far. `copied`: agent and session
    -> answers of other sessions that its log repeats."""
    by_session: dict[tuple[str, str], list[LoggedCall]] = defaultdict(list)
    for call in sums:
        by_session[call.agent, call.session_id].append(call)
    found = []
    taken: set[str] = set()
    for session, stated in by_session.items():
        own = {call.exchange_id for call in stated}
        answers = {
            answer.id: answer
            for place in places
            for engine in place.engines
            for answer in booked_answers(
                engine,
                ids=own,
                sessions=session_names(stated[0]),
                with_subagents=True,
                agents=[session[0]],
                models=[call.model for call in stated if call.model and call.is_alone],
                spans=[
                    (
                        min(call.at for call in stated) - APART_MAX - REQUEST_MAX,
                        max(call.ended_at for call in stated) + APART_MAX,
                    )
                ],
            )
        }
        rows = {each: answers.pop(each) for each in own if each in answers}
        for answer in copied.get(session, ()):
            answers.setdefault(answer.id, answer)
        counted = [
            each
            for each in answers.values()
            if each.agent in (session[0], None if each.session_id else session[0])
            and (each.session_id or each.id not in taken)
        ]
        taken |= {answer.id for answer in counted if answer.session_id is None}
        known = by_model(counted, [(call.model, call.usage.input_tokens) for call in stated])
        for call in stated:
            less: dict[str, int | None] = {
                name: None
                if (figure := getattr(call.usage, name)) is None
                else max(0, figure - sum(getattr(each, name) or 0 for each in known[call.model]))
                for name in FIGURES
            }
            of_nobody = [
                each
                for each in answers.values()
                if each.agent is None and each.session_id is None and each.model == call.model
                if each.id not in taken
            ]
            if of_nobody and all(
                sum(getattr(each, name) or 0 for each in of_nobody) == (less[name] or 0)
                for name in FIGURES
            ):
                taken |= {each.id for each in of_nobody}
                less = {name: None if less[name] is None else 0 for name in FIGURES}
            has_all = all(getattr(call.usage, name) == count for name, count in less.items())
            usage = call.usage if has_all else rest_of(call.usage, less)
            beside = {**call.beside, STATED: [getattr(call.usage, name) for name in FIGURES]}
            left = replace(call, usage=usage, beside=beside)
            found.append((left, rows.get(call.exchange_id)))
    return found
