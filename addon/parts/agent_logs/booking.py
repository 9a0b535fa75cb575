"""Edge (a ledger). Books the answers of agents' logs: each once, not if it was recorded live, and
with a further reading if the log had less of it before."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import batched
from pathlib import Path

from msgspec.structs import replace

from addon.parts.agent_logs import sums
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.call import Booked, LoggedCall, booked, fullness
from addon.parts.agent_logs.files import Log, SkippedCounts, read
from addon.parts.agent_logs.matching import KnownAnswers, answer_of, session_names
from addon.parts.agent_logs.reader import Reached, calls_of
from addon.parts.agent_logs.unchanged import UnchangedLogs
from ledger.maintenance import corrections
from ledger.maintenance.known import BookedAnswer, KnownExchanges, booked_answers
from ledger.maintenance.same_answer import APART_MAX, FIGURES, REQUEST_MAX
from ledger.model.exchange import Billing, Exchange, UsageSource
from ledger.pricing.charges import charge
from ledger.pricing.prices import PriceBook
from ledger.store.scope import Scope
from ledger.store.writing.incoming import Commits
from ledger.store.writing.writer import Ledger

ANSWERS_BATCH_MAX = 1_000
"""Answers per lookup and per write."""
SPANS_MAX = 8
"""Spans of time that are searched for recorded requests, for one lookup."""
RUNNING_FOR = timedelta(seconds=60)
"""An answer this recent may still be on its way through the proxy; the next import books it."""


@dataclass(slots=True)
class ImportTally:
    """Counts of one agent's answers, by result."""

    files: int = 0
    sessions: set[str] = field(default_factory=set)
    new: int = 0
    known: int = 0
    """Imported before, or a copy."""
    corrected: int = 0
    """Imported before when the log had less of it."""
    live: int = 0
    """Recorded live: that row counts, with its key and its bytes."""
    running: int = 0
    """Too recent."""
    future: int = 0
    """Of a time to come."""
    outside: int = 0
    """Outside of the requested period."""
    refused: int = 0
    """The ledger refused them."""
    skipped: SkippedCounts = field(default_factory=SkippedCounts)


type Stated = tuple[LoggedCall, Path, ImportTally]


def answers(
    logs: Iterable[Log],
    tallies: dict[str, ImportTally],
    *,
    scope: Scope,
    now: datetime,
    running_for: timedelta = RUNNING_FOR,
    unchanged: UnchangedLogs,
    progress: Callable[[Path], None],
) -> Iterator[Stated]:
    """The answers in the logs that are in the scope's times; the others are counted, and those of
    logs that have not changed. `progress` is called before each file."""
    for agent, path in logs:
        progress(path)
        tally = tallies.setdefault(agent.name, ImportTally())
        tally.files += 1
        known = unchanged.find(agent.name, path, scope)
        reached, skipped = Reached(), SkippedCounts()
        calls: Iterable[LoggedCall] | None = None
        if known is None and (before := unchanged.before(agent.name, path, scope)) is not None:
            reached = Reached(list(before.open_keys or ()), set(before.stated_ends))
            added = read(agent, path, skipped, before.state.size)
            calls = list(calls_of(agent, added, path, reached))
            if reached.needs_whole or skipped.files:
                reached, skipped, calls = Reached(), SkippedCounts(), None
            else:
                known = unchanged.go_on(path, before)
        if known is not None:
            tally.sessions |= known.sessions
            tally.known += known.known
            tally.live += known.live
            if known.skipped_lines:
                tally.skipped.lines[path] += known.skipped_lines
            if calls is None:
                continue
        log = unchanged.of(path)
        left = tally.outside, tally.future, tally.running
        if calls is None:
            calls = calls_of(agent, read(agent, path, skipped), path, reached)
        for call in calls:
            tally.sessions.add(call.session_id)
            if call.is_sum and (scope.until is not None and call.ended_at >= scope.until):
                tally.outside += 1  # of answers that are not booked
                continue
            if log is not None:
                log.sessions.add(call.session_id)
                log.first = min(log.first or call.at, call.at)
                log.last = max(log.last or call.at, call.at)
            is_early = scope.since is not None and call.at < scope.since
            if is_early or (scope.until is not None and call.at >= scope.until):
                tally.outside += 1
            elif call.ended_at > now:
                tally.future += 1
            elif call.ended_at > now - running_for:
                tally.running += 1
            else:
                yield call, path, tally
        tally.skipped.lines.update(skipped.lines)
        tally.skipped.files |= skipped.files
        if log is not None:
            log.skipped_lines = skipped.lines[path]
            if (tally.outside, tally.future, tally.running) != left or skipped.files:
                log.is_whole = False
            is_alone = reached.needs_whole or skipped.lines[path]
            log.open_keys = None if is_alone else reached.open_keys
            log.stated_ends = list(reached.stated_ends)


def booked_like(
    places: Sequence[KnownExchanges],
    calls: Sequence[LoggedCall],
    *,
    whole_agents: Collection[str] = (),
) -> list[BookedAnswer]:
    """The requests of ledgers among which these answers may be; and all others of their sessions,
    and of these agents, if `whole_agents` are named."""
    sessions = {
        name
        for call in calls
        for name in session_names(call)
        if whole_agents or call.threads or call.response_id is None
    }
    spans = spans_of(calls)
    return [
        answer
        for place in places
        for engine in place.engines
        for answer in booked_answers(
            engine,
            ids=[call.exchange_id for call in calls],
            response_ids=[call.response_id for call in calls if call.response_id],
            sessions=sessions,
            times=[call.at for call in calls if call.copies_renew_ids],
            agents=[call.agent for call in calls],
            spans=spans,
            whole_agents=whole_agents,
            inputs=[
                call.usage.input_tokens
                for call in calls
                if call.usage.input_tokens and call.response_id is None
            ],
            copied_inputs=[
                call.usage.input_tokens
                for call in calls
                if call.usage.input_tokens and call.copies_renew_ids and call.response_id is None
            ],
        )
    ]


def spans_of(calls: Iterable[LoggedCall]) -> list[tuple[datetime, datetime]]:
    """The times when recorded requests of these answers may have been, as few spans: each is
    searched row by row, and logs that follow each other may lie months apart."""
    before = APART_MAX + REQUEST_MAX
    ordered = sorted((call.at - before, call.ended_at + APART_MAX) for call in calls)
    apart = timedelta(hours=1)
    while True:
        spans: list[tuple[datetime, datetime]] = []
        for begin, end in ordered:
            if spans and begin - spans[-1][1] <= apart:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((begin, end))
        if len(spans) <= SPANS_MAX:
            return spans
        apart *= 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """Books answers in a ledger."""

    places: Sequence[KnownExchanges]
    """The ledgers in which an answer may be."""
    ledger: Ledger
    commits: Commits
    prices: PriceBook
    tags: Mapping[str, str]
    now: datetime
    unchanged: UnchangedLogs
    has_all: bool = True
    """All logs of a session are read. Else its sums are looked at again the next time."""
    is_dry: bool = False
    """The ledger is written for this import alone: what others have is not corrected."""
    billing: Callable[[Exchange], Billing | None] = lambda _: None
    """The operator's own word on how an exchange is billed, over the log's."""

    def take(self, stated: Iterable[Stated]) -> None:
        """Book the answers; their tallies count the results."""
        of_sessions: list[Stated] = []
        copied: dict[tuple[str, str], list[BookedAnswer]] = defaultdict(list)

        def answers_alone() -> Iterator[Stated]:
            for each in stated:
                if each[0].is_sum:
                    of_sessions.append(each)
                else:
                    yield each

        for batch in batched(answers_alone(), ANSWERS_BATCH_MAX):
            known = KnownAnswers(booked_like(self.places, [call for call, *_ in batch]))
            new: dict[str, Stated] = {}
            fuller: dict[str, Stated] = {}
            for call, path, tally in batch:
                answer = known.find(call)
                log = self.unchanged.of(path)
                if log is not None and answer is None:
                    log.add(call.exchange_id, call.at, is_live=False)
                elif log is not None and answer is not None:
                    log.add(answer.id, answer.opened_at, is_live=not answer.is_import)
                if answer is None:
                    tally.new += 1
                    new[call.exchange_id] = call, path, tally
                    known.add(answer_of(call))
                    continue
                if AGENTS[call.agent].sums and answer.session_id != call.session_id:
                    copied[call.agent, call.session_id].append(answer)
                if not answer.is_import:
                    tally.live += 1
                    continue
                source = UsageSource(answer.usage_source or UsageSource.NONE)
                if call.fullness <= fullness(source, answer.output_tokens, answer.input_tokens):
                    tally.known += 1
                    continue
                answer.usage_source = call.usage_source
                answer.output_tokens = call.usage.output_tokens
                answer.input_tokens = call.usage.input_tokens
                if answer.id in new:
                    first = new[answer.id][0]
                    whole = replace(call, key=first.key, session_id=first.session_id, at=first.at)
                    new[answer.id] = whole, path, tally
                    tally.known += 1
                else:
                    fuller[answer.id] = call, path, tally
            self._settle(list(new.values()))
            self._correct(fuller, "the log has more of the answer")
        self._take_sums(of_sessions, copied)

    def _take_sums(
        self, stated: Sequence[Stated], copied: Mapping[tuple[str, str], Sequence[BookedAnswer]]
    ) -> None:
        """Book what is left of sums when the answers are in the ledger."""
        of = {call.exchange_id: (path, tally) for call, path, tally in stated}
        calls = sums.fullest(call for call, *_ in stated)
        new, changed = [], {}
        for call, row in sums.differences(self.places, calls, copied):
            path, tally = of[call.exchange_id]
            log = self.unchanged.of(path)
            if log is not None:
                log.is_whole = log.is_whole and self.has_all
            if row is None and not any(getattr(call.usage, name) for name in FIGURES):
                continue
            if log is not None:
                log.add(call.exchange_id, call.at, is_live=False)
            if row is None:
                tally.new += 1
                new.append((call, path, tally))
            elif any(getattr(call.usage, name) != getattr(row, name) for name in FIGURES):
                changed[row.id] = call, path, tally
            else:
                tally.known += 1
        self._settle(new)
        self._correct(changed, "what no answer of the session has")

    def _settle(self, new: Sequence[Stated]) -> None:
        receipts = [
            (self.ledger.settle(*self._booked(call, path)), path, tally)
            for call, path, tally in new
        ]
        self.commits.wait(len(receipts))
        for receipt, path, tally in receipts:
            if not receipt.committed:
                tally.refused += 1
                tally.new -= 1
                log = self.unchanged.of(path)
                if log is not None:
                    log.is_whole = False

    def _correct(self, by_id: Mapping[str, Stated], why: str) -> None:
        """Further readings of rows of which the logs say something else than before."""
        for engine in [each for place in self.places for each in place.engines if by_id]:
            further = []
            for before in corrections.find(engine, list(by_id)).values():
                call, path, tally = by_id[before.exchange.id]
                tally.corrected += 1
                output = f"{before.reading.usage.output_tokens} -> {call.usage.output_tokens}"
                reading = replace(
                    self._booked(call, path)[1],
                    exchange_id=before.exchange.id,
                    opened_at=before.exchange.opened_at,
                    reason=f"{why}: output_tokens {output}",
                )
                further.append((reading, charge(before.exchange, reading, self.prices)))
            if not self.is_dry:
                corrections.add_readings(engine, further)

    def _booked(self, call: LoggedCall, path: Path) -> Booked:
        capture = f"{path}#{call.exchange_id}"
        exchange, reading = booked(call, now=self.now, capture=capture, tags=self.tags)
        return exchange, replace(reading, billing=self.billing(exchange) or reading.billing)
