"""Wiring. `tokentee top`: running requests, live, once, or as one line for a status bar."""

import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.commands.options import LedgerOption, NamesOption, Only, TimezoneOption, scope_of
from ledger.commands.output import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

    from ledger.figures.activity import Activity

EVERY_SECONDS = 2.0
SHARE = 10
"""The pause is at least this many times as long as the queries took: `top` uses a tenth of a core
at most, however many requests the day has."""


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    line: Annotated[
        bool, typer.Option("--line", help="One line for a status bar, once, and end.")
    ] = False,
    only: Only = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show running requests, tokens per second, and today's cost by session and model.

    It refreshes until Ctrl-C. Today is a day of the zone. If standard output is not a terminal, it
    prints once.
    """
    from ledger.figures.activity import take
    from ledger.figures.queries import existing_ledger
    from ledger.reports.activity_text import lines, one_line

    scope = scope_of(None, None, only, names, timezone)
    with existing_ledger(ledger) as engine:

        def ask() -> "Activity":
            return take(engine, scope, datetime.now(UTC))

        if line:
            sys.stdout.write(f"{one_line(ask())}\n")
        elif once or not sys.stdout.isatty():
            screen = console()
            screen.print(_styled(lines(ask(), screen.width)), soft_wrap=True)
        else:
            _live(ask)


def _styled(lines: "list[str]") -> "Text":
    from rich.text import Text

    from ledger.reports.activity_text import STYLES

    text = Text("\n".join(lines), no_wrap=True, overflow="crop")
    for expression, style in STYLES:
        text.highlight_regex(expression, style)
    return text


def _live(ask: "Callable[[], Activity]") -> None:
    from rich.live import Live

    from ledger.reports.activity_text import lines

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
                shown = lines(ask(), screen.width, screen.height)
                live.update(_styled(shown), refresh=True)
                time.sleep(max(EVERY_SECONDS, SHARE * (time.monotonic() - started)))
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)
