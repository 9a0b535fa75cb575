"""Wiring. The whole page as one HTML file, which can be opened anywhere, mailed and printed."""

import os
import stat
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy.engine import Engine

from ledger.attach import attached
from ledger.model.errors import LedgerError
from ledger.parts.pages import rendering, sections
from ledger.parts.pages.period import Period
from ledger.parts.pages.sections import Question
from ledger.store.engines import urls
from ledger.store.scope import Scope, snapshot


def write(text: str, path: Path) -> int:
    """Write a page into a file; its size in bytes. LedgerError if it cannot be written."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        # Only its owner can read it, also if others could read it before.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # not a pipe or a terminal
                os.fchmod(descriptor, 0o600)
            file.write(data)
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}; name another file") from error
    return len(data)


def page(engine: Engine, scope: Scope, *, now: datetime) -> str:
    """The page of a scope, without references to other files."""
    question = Question(
        period=Period(since=scope.since, until=scope.until, now=now),
        only=scope.only,
        names=scope.names,
    )
    option = urls.option(engine.url)
    known = sections.problems_of_parts(engine, question, option)
    overview = sections.overview(engine, question, known, option)
    values: dict[str, object] = {
        **rendering.inlined(),
        "is_live": False,
        "title": f"Tokentee: {overview.period}",
        "ledger": urls.shown(engine.url),
        "made": now,
        "only": scope.only,
        "overview": overview,
        "link": None,
        "listed": None,
        "open": None,
    }
    if overview.total.requests:
        stack, teams = sections.teams(engine, question)
        sessions = sections.sessions(engine, question)
        with snapshot(engine) as connection:
            few = sections.few(connection, question, overview.total)
            rankings = [
                sections.with_requests(connection, ranking, question)
                for ranking in (*overview.rankings, teams, sessions)
            ]
        values |= {
            "overview": replace(overview, rankings=tuple(rankings[:-2])),
            "stacks": (*overview.stacks, stack),
            "teams": rankings[-2],
            "sessions": rankings[-1],
            "few": few,
            "speed": sections.speed(engine, question),
            "of_parts": [
                rendering.section(part, part.values(engine, scope.names, now))
                for part in attached("section of a page")
                if part.has_any(engine)
            ],
        }
    return rendering.render("report.html", values)
