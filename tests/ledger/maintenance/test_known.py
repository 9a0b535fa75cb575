"""Which exchanges a ledger has settled, on either database."""

from sqlalchemy.engine import Engine

from ledger.maintenance import known
from ledger.model.exchange import Outcome, State
from tests.ledger.written import opened, put, settled, whole

ODD = "an 'odd' \"id\" \\ [1], 语"


def test_settled_exchanges_are_found_by_their_ids(engine: Engine) -> None:
    lost = settled("lost", state=State.LOST, outcome=Outcome.LOST)
    put(engine, whole(settled(ODD, path="/a")), whole(settled("b")), whole(lost))
    put(engine, (opened("open"), None, ()))
    many = [f"unknown {number}" for number in range(2_000)]
    found = known._settled(engine, [ODD, *many, "b", "open", "lost"])
    assert found == {ODD: "/a", "b": "/v1/chat/completions"}


def test_no_ids_find_nothing(engine: Engine) -> None:
    assert known._settled(engine, []) == {}
