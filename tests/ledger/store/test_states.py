"""Whatever happens to exchanges and ledgers, totals are the sum of what was billed.

A machine opens, settles, repeats, collides, crashes, merges, rebuilds and sums up, in any order, on
three ledgers; beside it stands a model of what each of them must then show.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.engine import Engine

from ledger.maintenance import rollup
from ledger.maintenance.corrections import add_reading
from ledger.model.usage import Usage
from ledger.parts.sync import merging
from ledger.store import db
from ledger.store.engines import sqlite_file
from ledger.store.processes import recovery
from ledger.store.writing import batch_insert
from tests.ledger.duplicates_rule import Member, link
from tests.ledger.written import NOON, ORIGIN, intake_on, opened, reading, row, settled

pytestmark = pytest.mark.large

OPEN, LOST, SETTLED = range(3)
NAMES = ("one", "two", "three")


@dataclass(frozen=True)
class Response:
    """What an upstream billed once, however often it was seen."""

    response_id: str
    content: str
    billed: int
    misread: int
    """What the first version of the meter reads instead."""


@dataclass
class Known:
    """What one ledger knows of an exchange."""

    response: Response
    at_hours: int
    state: int = OPEN
    is_rebuilt: bool = False

    @property
    def tokens(self) -> int:
        return self.response.billed if self.is_rebuilt else self.response.misread


@dataclass
class Model:
    """What a ledger must show."""

    known: dict[str, Known] = field(default_factory=dict)

    def take_in(self, other: "Model") -> None:
        for name, theirs in other.known.items():
            ours = self.known.setdefault(name, replace(theirs))
            ours.state = max(ours.state, theirs.state)
            ours.is_rebuilt |= theirs.is_rebuilt

    def totals(self) -> tuple[int, int | None]:
        links = link(
            Member(
                id=name,
                opened_at=NOON + timedelta(hours=known.at_hours),
                origin=ORIGIN,
                response_id=known.response.response_id,
                content_digest=known.response.content,
            )
            for name, known in self.known.items()
            if known.state == SETTLED
        )
        counted = [
            known
            for name, known in self.known.items()
            if known.state == LOST or (known.state == SETTLED and not links[name].duplicate_of)
        ]
        read = [known.tokens for known in counted if known.state == SETTLED]
        return len(counted), sum(read) if read else None


class Ledgers(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tt-states-"))
        self.models = {name: Model() for name in NAMES}
        self.urls = {name: f"sqlite:///{self.folder / name}.sqlite3" for name in NAMES}
        self.engines: dict[str, Engine] = {}
        self.writers: dict[str, sqlite3.Connection] = {}
        self.responses: list[Response] = []
        self.count = 0

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            shutil.copy(self.template, self.folder / f"{name}.sqlite3")
            self.engines[name] = db.open_engine(self.urls[name])
            self.writers[name] = intake_on(self.engines[name])
            self.writers[name].execute("PRAGMA synchronous = OFF")

    def teardown(self) -> None:
        for name in self.engines:
            self.writers[name].close()
            self.engines[name].dispose()
        shutil.rmtree(self.folder)

    def take(self, name: str, line: batch_insert.Row) -> None:
        self.writers[name].execute(*batch_insert.statement([line]))

    def open_one(self, name: str, response: Response, at_hours: int) -> str:
        self.count += 1
        exchange = f"e{self.count}"
        self.models[name].known[exchange] = Known(response, at_hours)
        under_way = opened(exchange, at=NOON + timedelta(hours=at_hours))
        self.take(name, batch_insert.open_row(under_way, f"host/{name}/1"))
        return exchange

    def settle_one(self, name: str, exchange: str) -> None:
        known = self.models[name].known[exchange]
        known.state = SETTLED
        ended = settled(
            exchange,
            at=NOON + timedelta(hours=known.at_hours),
            response_id=known.response.response_id,
            content_digest=known.response.content,
        )
        read = reading(ended, usage=Usage(input_tokens=known.response.misread))
        self.take(name, batch_insert.settled_row(ended, read, (), None))

    hours = st.integers(0, 60)
    names = st.sampled_from(NAMES)

    @rule(name=names, at=hours, billed=st.integers(0, 9), misread=st.integers(0, 9))
    def a_new_response(self, name, at, billed, misread):
        self.count += 1
        response = Response(f"r{self.count}", f"c{self.count}", billed, misread)
        self.responses.append(response)
        self.open_one(name, response, at)

    @precondition(lambda self: self.responses)
    @rule(name=names, at=hours, data=st.data())
    def another_response_with_the_same_id(self, name, at, data):
        known = data.draw(st.sampled_from(self.responses))
        self.count += 1
        response = replace(known, content=f"c{self.count}", billed=1, misread=1)
        self.responses.append(response)
        self.open_one(name, response, at)

    @precondition(lambda self: self.responses)
    @rule(name=names, at=hours, data=st.data())
    def the_same_response_seen_again(self, name, at, data):
        response = data.draw(st.sampled_from(self.responses))
        self.settle_one(name, self.open_one(name, response, at))

    @rule(name=names, data=st.data())
    def an_end(self, name, data):
        """Of what is under way, of what was given up, or once more of what has ended."""
        if known := sorted(self.models[name].known):
            self.settle_one(name, data.draw(st.sampled_from(known)))

    @rule(name=names)
    def a_crash(self, name):
        path = self.folder / f"{name}.sqlite3"
        with contextlib.closing(sqlite_file.connect(path)) as connection:
            recovery.mark_lost_of_dead_nodes(connection, path, "host/next/1", now=NOON)
        for known in self.models[name].known.values():
            known.state = max(known.state, LOST)

    @rule(giver=names, taker=names)
    def a_merge(self, giver, taker):
        if giver != taker:
            merging.sync(self.urls[giver], self.urls[taker])
            self.models[taker].take_in(self.models[giver])

    @rule(name=names)
    def a_rebuild(self, name):
        with db.writing(self.engines[name]) as connection:
            for exchange, known in self.models[name].known.items():
                if known.state == SETTLED:
                    ended = settled(exchange, at=NOON + timedelta(hours=known.at_hours))
                    better = reading(
                        ended,
                        usage=Usage(input_tokens=known.response.billed),
                        reason="the meter was put right",
                    )
                    add_reading(connection, better, ())
                    known.is_rebuilt = True

    @rule(name=names, days=st.integers(0, 4))
    def a_summing_up(self, name, days):
        rollup.roll(self.engines[name], now=NOON + timedelta(days=days))

    @invariant()
    def every_ledger_shows_what_was_billed(self):
        for name, engine in self.engines.items():
            model = self.models[name]
            shown = row(engine, "SELECT COUNT(*), SUM(input_tokens) FROM requests")
            by_day = row(engine, "SELECT SUM(requests), SUM(input_tokens) FROM usage_daily")
            opened_by_hour = row(engine, "SELECT SUM(opened), SUM(still_open) FROM completeness")
            count, tokens = model.totals()
            assert tuple(shown) == (count, tokens), name
            assert (by_day[0] or 0, by_day[1]) == (count, tokens), name
            still_open = sum(1 for known in model.known.values() if known.state == OPEN)
            assert (opened_by_hour[0] or 0) == len(model.known)
            assert (opened_by_hour[1] or 0) == still_open


def test_totals_are_what_was_billed(migrated_file):
    Ledgers.template = migrated_file
    Ledgers.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
    Ledgers.TestCase("runTest").runTest()
