"""Wiring. `tokentee statusline`: one line for agents, tmux and prompts."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ledger.commands.options import LedgerOption, TimezoneOption, scope_of

INPUT_BYTES_MAX = 256 * 1024
"""Claude Code writes some kilobytes."""


def statusline(
    *,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The session; default: the one that standard input names."),
    ] = None,
    timezone: TimezoneOption = None,
    ledger: LedgerOption = None,
) -> None:
    """One line: the session's requests and cost, today's cost, and limits.

    Claude Code calls it with JSON on standard input, if its settings.json has "statusLine":
    {"type": "command", "command": "tokentee statusline"}. tmux: #(tokentee statusline). Without a
    ledger it prints why, and ends with 0: a status line must not break its prompt.
    """
    from ledger.figures.activity import take
    from ledger.figures.queries import existing_ledger, totals
    from ledger.model.errors import LedgerError
    from ledger.reports.activity_text import status_line
    from ledger.store.scope import Scope
    from ledger.text.printable import printable

    session = session or _session_of(_input())
    now = datetime.now(UTC)
    try:
        with existing_ledger(ledger) as engine:
            activity = take(engine, scope_of(None, None, None, timezone=timezone), now)
            of_session = totals(engine, Scope(only=(("session", session),))) if session else None
    except LedgerError as error:
        why = printable(str(error).partition("\n")[0])
        typer.echo(f"tokentee: {why[:100]}")
        return
    typer.echo(status_line(activity, of_session))


def _input() -> str:
    """What stands on standard input, if it is no terminal."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return ""
        return sys.stdin.read(INPUT_BYTES_MAX)
    except (OSError, ValueError):
        return ""


def _session_of(text: str) -> str | None:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    name = found.get("session_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) and name else None
