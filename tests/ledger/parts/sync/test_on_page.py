"""What the page says of this machine's spool."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from ledger.parts.sync import on_page
from ledger.store.spool import RefusedExchange, SpoolStatus

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def status(waiting: int, age: timedelta, *, refused: int = 0, trouble: str | None = None):
    return SpoolStatus(
        path=Path("spool"),
        target="pg",
        waiting=waiting,
        oldest=NOW - age,
        shipped_at=None,
        trouble=trouble,
        refused=(RefusedExchange(("", "e"), "it is not whole"),) * refused,
    )


def test_what_ships_in_time_is_no_problem():
    assert on_page.problems_of(status(3, timedelta(seconds=5)), NOW, "") == []


def test_what_is_late_and_what_was_refused_are_counted():
    found = on_page.problems_of(
        status(7, timedelta(hours=2), refused=2, trouble="no route"), NOW, " --ledger x"
    )
    assert [(one.kind, one.level, one.count) for one in found] == [
        ("late shipping", "bad", 7),
        ("refused", "bad", 2),
    ]
    assert found[0].headline == "7 requests of this machine not shipped yet"
    assert "2026-11-21 10:00 UTC" in found[0].advice
    assert "no route" in found[0].advice
    assert {one.command for one in found} == {"tokentee db check --ledger x"}
