"""Wiring. What is now: `tokentee top`, running requests, live or once; `statusline`, one line for
agents, tmux and prompts.
"""

import contextlib
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.commands.options import LedgerOption, NamesOption, Only, TimezoneOption, scope_of
from ledger.commands.output import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

TOP_EVERY_SECONDS = 2.0
SHARE = 10
"""The pause is at least this many times as long as the queries took: `top` uses a tenth of a core
at most, however many requests the day has."""


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    only: Only = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show running requests, tokens per second, and today's cost by session and model.

    It refreshes until Ctrl-C. Today is a day of the zone. If standard output is not a terminal, it
    prints once.
    """
    from ledger.attach import attached
    from ledger.figures.activity import take
    from ledger.figures.queries import existing_ledger
    from ledger.reports.activity_text import lines

    scope = scope_of(None, None, only, names, timezone)
    with existing_ledger(ledger) as engine:

        def ask(width: int, height: int | None = None) -> "list[str]":
            now = datetime.now(UTC)
            more = [line for each in attached("lines of top") for line in each(engine, now)]
            caps = [line for notices in attached("notices") for line in notices(engine, now)]
            return lines(take(engine, scope, now), width, height, caps, more)

        if once or not sys.stdout.isatty():
            screen = console()
            screen.print(_styled(ask(screen.width)), soft_wrap=True)
        else:
            _live(ask)


def _styled(lines: "list[str]") -> "Text":
    from rich.text import Text

    from ledger.reports.activity_text import STYLES

    text = Text("\n".join(lines), no_wrap=True, overflow="crop")
    for expression, style in STYLES:
        text.highlight_regex(expression, style)
    return text


def _live(ask: "Callable[[int, int], list[str]]") -> None:
    from rich.live import Live

    screen = console()
    is_asked = False

    def end(_signal: int, _frame: object) -> None:
        # Python drops an exception that is raised in a destructor or a callback, as any may run
        # just then; so the loop looks, too. An Event could be locked by the code that this stops.
        nonlocal is_asked
        is_asked = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        # The alternate screen is redrawn in place, so that nothing flickers and nothing scrolls.
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            while not is_asked:
                started = time.monotonic()
                shown = ask(screen.width, screen.height)
                live.update(_styled(shown), refresh=True)
                time.sleep(max(TOP_EVERY_SECONDS, SHARE * (time.monotonic() - started)))
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)


INPUT_BYTES_MAX = 256 * 1024
"""Claude Code writes some kilobytes."""
CONTEXT_MAX = 10**9
"""No context window has as many tokens."""


def statusline(
    *,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The session; default: the one that standard input names."),
    ] = None,
    timezone: TimezoneOption = None,
    ledger: LedgerOption = None,
) -> None:
    """One line: $/h, plan windows and the time left in them, share of the context, cost, model.

    $/h is what the session's last hour cost, or its list value on a plan. Claude Code calls it with
    JSON on standard input, if its settings.json has "statusLine": {"type": "command", "command":
    "tokentee statusline"}; this also says how large the context window is. tmux:
    #(tokentee statusline). Without a ledger it prints why, and ends with 0: a status line must not
    break its prompt.
    """
    from ledger.attach import attached
    from ledger.figures.activity import status
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError, NoLedgerError
    from ledger.reports.activity_text import status_line
    from ledger.text.printable import printable

    told: Any = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if sys.stdin is not None and not sys.stdin.isatty():
            told = json.loads(sys.stdin.read(INPUT_BYTES_MAX))
    told = told if isinstance(told, dict) else {}
    named = told.get("session_id")
    session = session or (named if isinstance(named, str) and named else None)
    context = told.get("context_window")
    size = context.get("context_window_size") if isinstance(context, dict) else None
    size = size if type(size) is int and 0 < size < CONTEXT_MAX else None
    try:
        with existing_ledger(ledger) as engine:
            scope, now = scope_of(None, None, None, timezone=timezone), datetime.now(UTC)
            caps: list[str] = []
            with contextlib.suppress(LedgerError):  # of a wrong budgets file: its proxy says so
                caps = [line for notices in attached("notices") for line in notices(engine, now)]
            words = [
                text for found in attached("words of statusline") for text in found(engine, now)
            ]
            line = status_line(status(engine, scope, session, now), size, [*words, *caps])
    except NoLedgerError:
        line = "tokentee: no ledger yet; `tokentee report` says how to get one"
    except LedgerError as error:
        why = printable(str(error).partition("\n")[0])
        line = f"tokentee: {why[:100]}"
    typer.echo(line)
