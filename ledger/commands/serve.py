"""Wiring. The ledger, read-only, for others: `tokentee serve`, a live page in a browser, and `mcp`,
its figures as tools for agents, over stdio."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ledger.commands.options import LedgerOption, NamesOption, Prices, TimezoneOption, scope_of
from ledger.commands.output import print_line
from ledger.figures.request_filter import Kind

if TYPE_CHECKING:
    from ledger.store.scope import Scope

PORT = 8377


def serve(
    *,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Where to listen; 0 for any free port."
        ),
    ] = PORT,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="An address of this machine; another than loopback shows your figures to "
            "everyone who has the token, unencrypted.",
        ),
    ] = "127.0.0.1",
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in your browser.")
    ] = False,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Browse the ledger: spend, models, keys, sessions, down to one request. Until Ctrl-C.

    The page is for this machine alone, asks for the token in the address that is printed, and
    only reads the ledger, which may be recorded into meanwhile.
    """
    import ipaddress
    import secrets

    from ledger.budgets import budgets_file as budget_files
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError
    from ledger.pages import sections
    from ledger.pages.live import read_only, server
    from ledger.settings import names_file
    from ledger.store.engines import urls
    from ledger.text.period import zone_of

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise LedgerError(f"not an address: {host[:60]!r}; write --host 127.0.0.1") from None
    zone = zone_of(timezone) if timezone else UTC
    url = ledger or urls.default_url()
    with existing_ledger(url):
        pass  # like every command, this migrates an older SQLite ledger
    engine = read_only.open_read_only(url)
    on = server.listen(host, port)
    bound = on.getsockname()[1]
    token = secrets.token_urlsafe(24)
    shown = f"[{host}]" if address.version == 6 else host
    address_shown = f"http://{shown}:{bound}/?token={token}"
    if not address.is_loopback:
        print_line(f"other machines can reach {host}: whoever has the token can read the pages")
    typer.echo(address_shown)
    print_line("Ctrl-C ends it")
    if open_browser:
        import webbrowser

        webbrowser.open(address_shown)
    pages = server.Pages(
        engine,
        ledger=urls.shown(url),
        option=urls.option(url),
        names=names_file.load(names),
        budgets=budget_files.load(None),
        shipping=lambda: sections.shipping_to(engine.url),
        now=lambda: datetime.now(zone),
    )
    app = server.application(pages, port=bound, is_loopback=address.is_loopback, token=token)
    try:
        server.serve(app, on)
    except KeyboardInterrupt:
        print_line("ended")
    finally:
        on.close()
        engine.dispose()


ANSWER_BYTES_MAX = 40_000
"""Of one answer: some 10 000 tokens of the agent's context."""
TOOL_ROWS_MAX = 100
COUNTS = ("requests", "errors", "without_usage", "groups", "refused")
"""Endings of the names of counts: one that is left out is 0. Anything else that is left out was not
reported."""
ERROR_CHARACTERS_MAX = 2_000
"""Of the line that says why there is no answer."""
INSTRUCTIONS = """\
Usage and cost of LLM calls, as a recording proxy measured them. Amounts are USD: cost is what is
billed by tokens, list_value what the same tokens cost at list prices, also if a plan covers them;
never add the two. since and until: 2026-11, 2026-11-01, today, this-week, last-month, 7d (calendar
days of the zone that an answer names). only: conditions such as model=gpt-5, team=search,
session=ID, http_status=4*, purpose=turn; * and ? stand for any characters, (none) for no value.
A count of requests that is not there is 0; any other figure that is not there was not reported."""

type Period = Annotated[str | None, "2026-11-01, today, this-week, last-month, 7d, ..."]
type Only = Annotated[list[str] | None, "WORD=VALUE conditions; all words must hold"]


def mcp(
    *,
    prices: Prices = None,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Answer an agent's questions about what it costs: an MCP server on standard input and output.

    Tools: report, requests, explain, limits, cache, budgets. All of them only read the ledger, and
    their answers are bounded. Claude Code: claude mcp add tokentee -- tokentee mcp
    """
    from ledger.figures.queries import existing_ledger
    from ledger.pages.live.read_only import open_read_only
    from ledger.store.engines import urls

    url = ledger or urls.default_url()
    with existing_ledger(url):
        pass  # like every command, this migrates an older SQLite ledger
    engine = open_read_only(url)
    try:
        server_of(Answers(engine, names, prices, timezone)).run("stdio")
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class Answers:
    """The tools: each gives what the command of its name prints as JSON."""

    engine: Any
    """Of a ledger, read-only."""
    names: str | None = None
    prices: str | None = None
    timezone: str | None = None

    def report(
        self,
        by: list[str] | None = None,
        since: Period = None,
        until: Period = None,
        only: Only = None,
        top: int = 20,
    ) -> str:
        """Requests, tokens, cache, cost and times, grouped by words: model, provider, key, team,
        session, project, agent, purpose, day, week, month, outcome, error_type, tag:NAME, ..."""
        from ledger.figures import queries
        from ledger.reports import report_tables

        found = queries.report(
            self.engine, by or ["model"], self._scope(since, until, only), top=_within(top)
        )
        return bounded(report_tables.document(found), "rows")

    def requests(
        self,
        *,
        since: Period = None,
        until: Period = None,
        only: Only = None,
        kinds: list[Kind] | None = None,
        min_cost_usd: float | None = None,
        min_seconds: float | None = None,
        limit: int = 20,
        before: str | None = None,
    ) -> str:
        """Single requests, the latest first. kinds: errors, without_usage, unpriced, estimated,
        covered (by a plan), degraded. before: `older` of the page before, or
        the `place` of its last request if some were left out."""
        from ledger.figures.request_filter import filter_of
        from ledger.figures.request_list import latest
        from ledger.reports import requests_text
        from ledger.store.scope import snapshot

        chosen = filter_of(
            kinds or (),
            min_cost=None if min_cost_usd is None else str(min_cost_usd),
            min_seconds=None if min_seconds is None else str(min_seconds),
            before=before,
        )
        with snapshot(self.engine) as connection:
            scope = self._scope(since, until, only)
            found = latest(connection, scope, chosen, limit=_within(limit))
        return bounded(
            {"requests": requests_text.document(found.requests, scope.zone), "older": found.older},
            "requests",
        )

    def explain(self, id: str) -> str:  # noqa: A002  # as the tables call it
        """One request to the last line: facts, usage, charges with prices and their sources.
        id: of the request or of the response, or how either begins."""
        from ledger.reports import explain
        from ledger.reports.lookup import find

        return bounded(explain.document(find(self.engine, id)), "charges")

    def limits(self, provider: str | None = None) -> str:
        """Limits of plans and keys as the last answers stated them: used, resets, full at the
        present pace, and which sessions used them."""
        from ledger.figures import limits

        found = limits.limits(self.engine, datetime.now(UTC), provider=provider)
        return bounded({"limits": [each.as_json() for each in found]}, "limits")

    def cache(
        self,
        session: str | None = None,
        since: Period = None,
        until: Period = None,
        only: Only = None,
        by: Literal["reason", "session", "model", "key"] | None = None,
    ) -> str:
        """Why requests were not served from the prompt cache, the dearest cause first: what changed
        or expired; with tokens and list value lost."""
        from ledger.pricing.prices import PriceBook
        from ledger.why import questions

        scope = self._scope(since, until, only)
        found = questions.causes(self.engine, scope, session, PriceBook.load(self.prices), by)
        return bounded(
            {"causes": found.rows, "requests_without_segments": found.without_segments}, "causes"
        )

    def budgets(self) -> str:
        """Budgets in their present periods: spent, limit, forecast, state."""
        from ledger.budgets import budgets_file, status
        from ledger.settings import names_file

        budgets, names = budgets_file.load(None), names_file.load(self.names)
        found = status.statuses(self.engine, budgets.budgets, names, datetime.now(UTC))
        return bounded(status.document(found), "budgets")

    def _scope(self, since: str | None, until: str | None, only: list[str] | None) -> "Scope":
        return scope_of(since or None, until or None, only, self.names, self.timezone)


def server_of(answers: Answers) -> Any:
    """The server with its tools; what has no answer is the tool's error, one line."""
    from mcp.server.fastmcp import FastMCP
    from mcp.types import ToolAnnotations

    server = FastMCP("tokentee", instructions=INSTRUCTIONS, log_level="WARNING")
    # It has no parameter for it, and states the version of the package mcp instead.
    server._mcp_server.version = version("tokentee")
    tools = (
        answers.report, answers.requests, answers.explain, answers.limits, answers.cache,
        answers.budgets,
    )  # fmt: skip
    for tool in tools:
        server.tool(annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))(
            _said(tool)
        )
    return server


def _said(tool: Callable[..., str]) -> Callable[..., str]:
    import functools

    from mcp.server.fastmcp.exceptions import ToolError

    from ledger.model.errors import LedgerError
    from ledger.pages.live.read_only import deadline

    @functools.wraps(tool)
    def answered(*words: Any, **named: Any) -> str:
        try:
            with deadline():
                return tool(*words, **named)
        except LedgerError as error:
            why = " ".join(str(error).split())
            raise ToolError(why[:ERROR_CHARACTERS_MAX]) from error

    return answered


def bounded(document: Any, rows: str) -> str:
    """A document as JSON of at most `ANSWER_BYTES_MAX`. Rows are left out from the end, and it says
    how many; LedgerError if it is too long without any."""
    from ledger.model.errors import LedgerError
    from ledger.reports.render import as_json

    document = _brief(document)
    every = document[rows]
    kept = list(every)[:TOOL_ROWS_MAX]
    while True:
        left_out = len(every) - len(kept)
        note = {"left_out": f"{left_out} of {len(every)} {rows}: ask for less"} if left_out else {}
        # Within a text JSON escapes a line's end.
        text = re.sub(r"\n *", "", as_json({**document, rows: kept, **note}))
        if len(text.encode()) <= ANSWER_BYTES_MAX:
            return text
        if not kept:
            raise LedgerError(
                "this answer is too long for a tool: run tokentee on the command line"
            )
        kept = kept[: len(kept) // 2]


def _brief(value: Any) -> Any:
    """Without members that are null, and without counts of requests that are 0."""
    if isinstance(value, Mapping):
        return {
            name: _brief(each)
            for name, each in value.items()
            if each is not None and not (name.endswith(COUNTS) and each == 0)
        }
    return [_brief(each) for each in value] if isinstance(value, list | tuple) else value


def _within(count: int) -> int:
    return min(max(count, 1), TOOL_ROWS_MAX)
