"""Wiring. What is now: `tokentee top`, running requests, live or once; `statusline`,
one line for agents, tmux and prompts; `limits`, what answers stated of limits, and who used them.
"""

import contextlib
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.commands.options import (
    Form,
    LedgerOption,
    NamesOption,
    Only,
    TimezoneOption,
    scope_of,
)
from ledger.commands.output import console, print_line, write

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
    from ledger.budgets import cap_status
    from ledger.figures.activity import take
    from ledger.figures.queries import existing_ledger
    from ledger.reports.activity_text import lines

    scope = scope_of(None, None, only, names, timezone)
    with existing_ledger(ledger) as engine:

        def ask(width: int, height: int | None = None) -> "list[str]":
            now = datetime.now(UTC)
            return lines(
                take(engine, scope, now), width, height, cap_status.texts_in_force(engine, now)
            )

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
    from ledger.budgets import cap_status
    from ledger.figures.activity import status
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError
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
                caps = cap_status.texts_in_force(engine, now)
            line = status_line(status(engine, scope, session, now), size, caps)
    except LedgerError as error:
        why = printable(str(error).partition("\n")[0])
        line = f"tokentee: {why[:100]}"
    typer.echo(line)


LIMITS_EVERY_SECONDS = 5.0


def limits(
    *,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only of this key: its fingerprint or last characters."),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this provider.")
    ] = None,
    form: Form = "table",
    watch: Annotated[bool, typer.Option("--watch", help="Print again until Ctrl-C.")] = False,
    plans: Annotated[
        bool,
        typer.Option(
            "--plans", help="By month: what each plan covered at list prices, against its price."
        ),
    ] = False,
    value: Annotated[
        bool,
        typer.Option(
            "--value",
            help="What one percent of each plan's window buys, and what was not recorded.",
        ),
    ] = False,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """How much of plans and rate limits is used, when they reset, and who used them.

    Figures are those that the providers' answers stated, so a limit is known from the first answer
    on. Without an answer since its reset, the status is `reset` and no figure is shown. Shares are
    percent points of the limit: each change from one answer to the next belongs to the sessions
    answered between them, by list value.
    """
    if plans:
        _plans(form, key, provider, names, ledger)
        return
    if value:
        _values(form, key, provider, ledger)
        return
    from ledger.figures import limits as figures
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    with existing_ledger(ledger) as engine:
        while True:
            now = datetime.now(UTC)
            found = figures.limits(engine, now, key=key, provider=provider)
            if form == "json":
                sys.stdout.write(f"{json.dumps([each.as_json() for each in found])}\n")
            else:
                text = limits_text.lines(found, now, console().width)
                sys.stdout.write("\n".join(text) + "\n")
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(LIMITS_EVERY_SECONDS)


def _plans(
    form: Form, key: str | None, provider: str | None, names: str | None, ledger: str | None
) -> None:
    """Prices of plans stand in the names file, as [[plan]]."""
    from ledger.figures import plans
    from ledger.figures.limit_values import limit_values
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    only = [f"{word}={value}" for word, value in (("key", key), ("provider", provider)) if value]
    with existing_ledger(ledger) as engine:
        months = plans.plan_months(engine, scope_of(None, None, only, names))
        values = limit_values(engine, datetime.now(UTC), key=key, provider=provider)
    document = [each.as_json() for each in months]
    write(form, limits_text.plan_table(months), document, "Plans by month")
    if form == "table":
        print_line(plans.METHOD if months else "no plan covers a recorded request")
        for line in limits_text.worths(values):
            print_line(line)
        if any(each.picousd_per_month is None for each in months):
            print_line("[[plan]] with usd_per_month in the names file gives a plan its price")


def _values(form: Form, key: str | None, provider: str | None, ledger: str | None) -> None:
    from ledger.figures.limit_values import limit_values
    from ledger.figures.queries import existing_ledger
    from ledger.reports import limits_text

    with existing_ledger(ledger) as engine:
        found = limit_values(
            engine, datetime.now(UTC), key=key, provider=provider, has_full_at=True
        )
    document = [row for each in found for row in each.as_json()]
    write(form, limits_text.value_table(found), document, "What a percent buys")
    if form == "table":
        for note in limits_text.value_notes(found):
            print_line(note)
        print_line(
            limits_text.VALUE_METHOD if found else "no answer has stated how much of a plan is used"
        )
