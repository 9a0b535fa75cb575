"""Edge. The live page: its routes, and the server that answers them.

Reads only. Each answer has an ETag made of the ledger's version, so an open page can poll at no
cost until something is written. The slow parts of a page have routes of their own. At most
`QUESTIONS_MAX` queries run at once.
"""

import asyncio
import hashlib
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from threading import Lock, Semaphore
from typing import Any, ClassVar
from urllib.parse import quote

import uvicorn
from sqlalchemy.engine import Engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ledger.attach import attached
from ledger.figures import queries
from ledger.figures.request_filter import KINDS
from ledger.figures.request_list import ChargeLine, latest
from ledger.model.errors import LedgerError
from ledger.parts.pages import rendering, sections
from ledger.parts.pages.live import address, read_only
from ledger.parts.pages.live.address import PageQuestion
from ledger.parts.pages.live.guard import Guard
from ledger.reports import explain, render, report_tables, requests_text
from ledger.reports.lookup import find
from ledger.settings.names import NO_NAMES, Names
from ledger.store.scope import snapshot
from ledger.text.period import zone_in

QUESTIONS_MAX = 2
"""Concurrent queries: the database also has to record traffic."""
PAGE_REQUESTS = 100
"""Requests of one page of a list."""
KEPT_MAX = 64
"""Cached answers; a page is some 100 KB."""
SLOW_SECONDS = 1.0
REST_FACTOR = 20
"""An answer that took longer than `SLOW_SECONDS` is cached for this many times as long, so that a
page that refreshes itself uses a busy ledger for at most a twentieth of the time."""
PAGE_CONNECTIONS_MAX = 50
SILENT_MAX = 20
PAGE_SILENT_SECONDS_MAX = 5.0
"""Connections that have not sent a whole request, and how long each may take for it."""
PAGE_HEAD_BYTES_MAX = 16 * 1024
PAGE_STOP_SECONDS_MAX = 2
MEDIA_TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
}

type Make = Callable[[Request, datetime], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPage:
    """A rendered page."""

    tag: str
    text: str
    good_until: float
    """On the monotonic clock: until then it is served, even if the ledger has changed."""


@dataclass(slots=True)
class PageCache:
    """A cache of the latest answers, by address."""

    answers: OrderedDict[str, RenderedPage] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def get(self, address: str, tag: str) -> RenderedPage | None:
        """A cached answer that is still valid."""
        with self.lock:
            found = self.answers.get(address)
            if found is None or (found.tag != tag and time.monotonic() >= found.good_until):
                return None
            self.answers.move_to_end(address)
            return found

    def put(self, address: str, answer: RenderedPage) -> None:
        """Cache an answer, and drop the oldest."""
        with self.lock:
            self.answers[address] = answer
            self.answers.move_to_end(address)
            while len(self.answers) > KEPT_MAX:
                self.answers.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Pages:
    """The routes."""

    engine: Engine
    _: KW_ONLY
    ledger: str = ""
    option: str = ""
    names: Names = NO_NAMES
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    kept: PageCache = field(default_factory=PageCache)
    turns: Semaphore = field(default_factory=lambda: Semaphore(QUESTIONS_MAX))

    def routes(self) -> list[Route]:
        """Path -> answer. Starlette runs these on threads of its own."""
        made = {
            "/": self._report,
            "/section/{name}": self._section,
            "/rows": self._rows,
            "/requests": self._requests,
            "/exchange/{id:path}": self._exchange,
        }
        return [
            Route("/exchange", self.exchange_of),
            Route("/static/{name}", self.static),
            *(Route(path, partial(self._answer, self._html, make)) for path, make in made.items()),
            Route("/requests.csv", partial(self._answer, self._file, self._requests_csv)),
            Route("/report.csv", partial(self._answer, self._file, self._report_csv)),
        ]

    def exchange_of(self, request: Request) -> Response:
        """Redirect from the field for an id to the page of that request."""
        word = request.query_params.get("id", "").strip()[: address.LENGTH_MAX]
        return RedirectResponse(f"/exchange/{quote(word, safe='')}" if word else "/", 303)

    def static(self, request: Request) -> Response:
        """Style and scripts; their address contains their version, so browsers cache them for
        good."""
        name = request.path_params["name"]
        if name not in MEDIA_TYPES:
            return PlainTextResponse("Not found.", 404)
        return Response(
            rendering.asset(name),
            media_type=MEDIA_TYPES[name],
            headers={"cache-control": "private, max-age=31536000, immutable"},
        )

    def _answer(
        self, form: Callable[[Make, Request], Response], make: Make, request: Request
    ) -> Response:
        try:
            with read_only.deadline():
                return form(make, request)
        except read_only.TooLongError as error:
            return HTMLResponse(self._message(str(error)), 503)
        except LedgerError as error:
            return HTMLResponse(self._message(str(error)), 400)

    def _html(self, make: Make, request: Request) -> Response:
        now = self.now()
        version = read_only.version_of(self.engine)
        address = str(request.url)
        code = rendering.asset("page.js") + rendering.asset("page.css")
        digest = hashlib.sha256(code.encode()).hexdigest()
        state = "\n".join((version, str(now.date()), address, digest))
        state_digest = hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()
        tag = f'"{state_digest[:32]}"'
        answer = self.kept.get(address, tag)
        if answer is None:
            with self.turns:
                began = time.monotonic()
                text = make(request, now)
            ended = time.monotonic()
            is_slow = ended - began >= SLOW_SECONDS
            rest = REST_FACTOR * (ended - began) if is_slow else 0
            answer = RenderedPage(tag=tag, text=text, good_until=ended + rest)
            self.kept.put(address, answer)
        headers = {"etag": answer.tag, "cache-control": "private, no-cache"}
        if answer.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return HTMLResponse(answer.text, headers=headers)

    def _file(self, make: Make, request: Request) -> Response:
        with self.turns:
            text = make(request, self.now())
        name = f"tokentee-{request.url.path.strip('/')}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    def _requests_csv(self, request: Request, now: datetime) -> str:
        wanted = self._asked(request, now)
        with snapshot(self.engine) as connection:
            page = latest(connection, wanted.question.scope, wanted.filter, limit=PAGE_REQUESTS)
        return render.as_csv(requests_text.flat(page.requests))

    def _report_csv(self, request: Request, now: datetime) -> str:
        by, scope = request.query_params.get("by", ""), self._asked(request, now).question.scope
        return render.as_csv(report_tables.flat(queries.report(self.engine, (by,), scope)))

    def _asked(self, request: Request, now: datetime) -> PageQuestion:
        return address.parse(request.query_params.multi_items(), now=now, names=self.names)

    def _report(self, request: Request, now: datetime) -> str:
        wanted = self._asked(request, now)
        known = sections.problems_of_parts(self.engine, wanted.question, self.option)
        overview = sections.overview(self.engine, wanted.question, known, self.option)
        with snapshot(self.engine) as connection:
            few = sections.few(connection, wanted.question, overview.total)
        return self._page(
            "report.html",
            now,
            wanted,
            title=f"Tokentee: {overview.period}",
            overview=overview,
            few=few,
            open=_exchange_address,
            stacks=overview.stacks,
            sections_of_parts=[
                part.name for part in attached("section of a page") if part.has_any(self.engine)
            ],
            section=wanted.section,
            presets=list(wanted.presets()),
            removals=list(replace(wanted, narrowed=()).chosen("/")),
            since=wanted.day("since"),
            until=wanted.day("until"),
        )

    def _section(self, request: Request, now: datetime) -> str:
        wanted = self._asked(request, now)
        question, link = wanted.question, wanted.link
        name = request.path_params["name"]
        if name == "speed":
            return rendering.macro("speed", sections.speed(self.engine, question))
        if name == "sessions":
            costliest = sections.sessions(self.engine, question)
            return rendering.macro("ranking", costliest, link, True)
        if name == "teams":
            stack, ranking = sections.teams(self.engine, question)
            # At the end: the browser would parse a leading script into the document's head.
            table = rendering.macro("ranking", ranking, link, True)
            return table + rendering.macro("stack_data", stack)
        for part in attached("section of a page"):
            if part.name == name:
                return str(rendering.section(part, part.values(self.engine, self.names, now)))
        raise LedgerError(f"no part of a page is called {name[:40]!r}")

    def _rows(self, request: Request, now: datetime) -> str:
        given = request.query_params
        wanted = self._asked(request, now)
        only = address.condition_of(given.get("row", ""))
        at, last_day = given.get("at"), None
        if at is not None:
            try:
                last_day = str(datetime.fromisoformat(at[:10]).date())
            except ValueError:
                raise LedgerError(f"not a day: {at[:20]!r}") from None
        scope = sections.row_scope(wanted.question, only, last_day)
        with snapshot(self.engine) as connection:
            found = latest(connection, scope, limit=sections.REQUESTS_IN_ROW).requests
        return rendering.macro("requests", found, None, _exchange_address) + rendering.macro(
            "more_requests", wanted.address("/requests", scope.only)
        )

    def _requests(self, request: Request, now: datetime) -> str:
        wanted = self._asked(request, now)
        with snapshot(self.engine) as connection:
            page = latest(connection, wanted.question.scope, wanted.filter, limit=PAGE_REQUESTS)
        only, narrowed = wanted.question.only, wanted.narrowed
        return self._page(
            "requests.html",
            now,
            wanted,
            title="Tokentee: requests",
            found=page.requests,
            looked_to=page.looked_to,
            older=wanted.requests(page.older) if page.older else None,
            newest=wanted.requests() if wanted.filter.before else None,
            file=wanted.requests(request.query_params.get("before", ""), "/requests.csv"),
            period=wanted.question.period,
            open=_exchange_address,
            back=wanted.address("/", only),
            chosen=list(wanted.chosen("/requests")),
            kept=[*wanted.time, *(("only", f"{word}={value}") for word, value in only)],
            narrowed=narrowed,
            given=dict(narrowed),
            fields=address.FIELDS,
            kinds=KINDS,
        )

    def _exchange(self, request: Request, now: datetime) -> str:
        found = find(self.engine, request.path_params["id"][: address.LENGTH_MAX])
        more = [each(self.engine, found.exchange) for each in attached("facts of a request")]
        zone = zone_in(now)
        return self._page(
            "exchange.html",
            now,
            None,
            title="Tokentee: one request",
            id=found.exchange["id"],
            facts=[*explain.facts(found, zone), *chain.from_iterable(more)],
            readings=[list(explain.reading_facts(one, zone)) for one in found.readings],
            charges=[_line(each) for each in found.charges],
            past=[_line(each) for each in found.past_charges],
            amounts=explain.amounts(found),
        )

    def _message(self, text: str) -> str:
        return self._page("message.html", self.now(), None, title="Tokentee", text=text)

    def _page(
        self, template: str, now: datetime, wanted: PageQuestion | None, **values: Any
    ) -> str:
        shared: Mapping[str, object] = {
            "is_live": True,
            "asset": _asset_address,
            "ledger": self.ledger,
            "made": now,
            "only": wanted.question.only if wanted else (),
            "link": wanted.link if wanted else None,
            "listed": wanted.listed if wanted else None,
        }
        return rendering.render(template, {**shared, **values})


def application(pages: Pages, *, port: int, is_loopback: bool, token: str) -> Guard:
    """The guarded pages, as a server takes them."""
    return Guard(
        app=Starlette(routes=pages.routes()), port=port, is_loopback=is_loopback, token=token
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. LedgerError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(
            PAGE_CONNECTIONS_MAX
        )  # a browser that connects before the server is ready waits
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise LedgerError(
            f"cannot listen on {host}:{port}: {reason}; name another with --port, 0 for any"
        ) from error
    return made


class PageConnection(H11Protocol):
    """A connection that must send a whole request soon, so that half-sent ones keep nobody away."""

    _silent: ClassVar[OrderedDict["PageConnection", None]] = OrderedDict()
    """Connections without a request, the oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; a further connection takes the place of the oldest."""
        super().connection_made(transport)
        self._silent[self] = None
        if len(self._silent) > SILENT_MAX:
            self._silent.popitem(last=False)[0].transport.abort()
        self.loop.call_later(PAGE_SILENT_SECONDS_MAX, self._cut_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._silent.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait no longer if this is the end of a request."""
        super().data_received(data)
        if self.cycle is not None:
            self._silent.pop(self, None)

    def _cut_if_silent(self) -> None:
        if self in self._silent:
            self.transport.abort()


def serve(app: Guard, on: socket.socket) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # its lines would contain the token
        server_header=False,
        limit_concurrency=PAGE_CONNECTIONS_MAX,
        timeout_graceful_shutdown=PAGE_STOP_SECONDS_MAX,
        http=PageConnection,
        h11_max_incomplete_event_size=PAGE_HEAD_BYTES_MAX,
        ws="none",
        lifespan="off",
    )
    uvicorn.Server(config).run(sockets=[on])


def _asset_address(name: str) -> str:
    digest = hashlib.sha256(rendering.asset(name).encode()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def _exchange_address(one: Any) -> str:
    return f"/exchange/{quote(one.id, safe='', errors='surrogatepass')}"


def _line(charge: explain.Facts) -> ChargeLine:
    source = charge["price_source"] if charge["unit_picousd"] is not None else ""
    return ChargeLine(
        line=charge["line"],
        model=charge["model"],
        quantity=charge["quantity"],
        unit_picousd=charge["unit_picousd"],
        amount_picousd=charge["amount_picousd"],
        source="; ".join(filter(None, (source, charge["reason"]))),
    )
