"""Wiring. The whole page as one HTML file, which can be opened anywhere, mailed and printed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy.engine import Engine

from ledger.budgets import spending
from ledger.budgets.budgets import NO_BUDGETS, Budgets
from ledger.model.errors import LedgerError
from ledger.pages import rendering, sections
from ledger.pages.period import Period
from ledger.pages.problems import Shipping
from ledger.pages.sections import Question
from ledger.store.engines import urls
from ledger.store.scope import Scope, snapshot


def write(
    engine: Engine,
    scope: Scope,
    path: Path,
    *,
    now: datetime,
    shipping: Sequence[Shipping] = (),
    budgets: Budgets = NO_BUDGETS,
) -> int:
    """Write the page of a scope into a file; its size in bytes. LedgerError if it cannot be
    written."""
    text = page(engine, scope, now=now, shipping=shipping, budgets=budgets)
    data = text.encode("utf-8", "backslashreplace")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}; name another file") from error
    return len(data)


def page(
    engine: Engine,
    scope: Scope,
    *,
    now: datetime,
    shipping: Sequence[Shipping] = (),
    budgets: Budgets = NO_BUDGETS,
) -> str:
    """The page of a scope, without references to other files."""
    question = Question(
        period=Period(since=scope.since, until=scope.until, now=now),
        only=scope.only,
        names=scope.names,
    )
    overview = sections.overview(engine, question, shipping)
    values: dict[str, object] = {
        **rendering.inlined(),
        "is_live": False,
        "title": f"Tokentee: {overview.period}",
        "ledger": urls.shown(engine.url),
        "made": now,
        "only": scope.only,
        "overview": overview,
        "link": None,
    }
    if overview.total.requests:
        stack, teams = sections.teams(engine, question)
        sessions = sections.sessions(engine, question)
        with snapshot(engine) as connection:
            rankings = [
                sections.with_requests(connection, ranking, question)
                for ranking in (*overview.rankings, teams, sessions)
            ]
        values |= {
            "overview": replace(overview, rankings=tuple(rankings[:-2])),
            "stacks": (*overview.stacks, stack),
            "teams": rankings[-2],
            "sessions": rankings[-1],
            "odd": sections.odd(engine, question),
            "speed": sections.speed(engine, question),
            "budgets": spending.statuses(engine, budgets.budgets, scope.names, now),
        }
    return rendering.render("report.html", values)
