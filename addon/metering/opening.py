"""Pure. A request -> how its exchange is read, and what the ledger stores while it is open."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from msgspec.structs import replace

from addon.dialects import billing, limits
from addon.dialects import routes as table
from addon.dialects.agents import agent_of, purpose_of
from addon.dialects.dialect import Dialect
from addon.dialects.facts import AnswerContext, text_of, token_of
from addon.dialects.request import PARSED_BYTES_MAX, RequestFacts, read_request
from addon.dialects.routes import Route
from addon.dialects.unrouted import is_no_call
from addon.framing import grpc, json_values
from addon.metering import attribution, estimate
from addon.metering.decoding import decoder_of
from addon.metering.memory_budget import MemoryBudget
from addon.metering.messages import NOT_KNOWN, Body, Request
from addon.metering.segments import NOT_READ as NO_CHAT
from addon.metering.segments import read_in_steps
from addon.metering.troubles import Troubles
from ledger.model import provider_table
from ledger.model.duplicates import request_digest_in_steps
from ledger.model.exchange import Billing, Exchange, Source
from ledger.model.segments import OPERATIONS, Row

PATH_LENGTH_MAX = 512
HEADER_LENGTH_MAX = 256
PATHS_MAX = 256
"""Size of the cache of redacted paths: most clients request the same path repeatedly."""
LARGE_BYTES = 256 * 1024
"""A body up to this size is read in one step, in 5 ms at worst."""
QUERY_LENGTH_MAX = 4_096
"""Characters of a query that are searched for `model=`."""
REQUEST_PIECES_MAX = 8_192
"""Steps of decoding a request: a request of 32 MB takes as many, of 4 KB each. An empty gzip member
is also a step, of 2 µs."""
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""The decoder does not read a request that decodes to more: a compressed body can have any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A host to treat as an LLM upstream. None: any port; the host determines the provider."""

    host: str
    port: int | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Settings for every exchange of one run."""

    node: str
    """The recording process."""
    secret: bytes = b""
    """The ledger's, for fingerprints of keys."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """For every exchange; they override a client's tags."""
    takes_client_tags: bool = True
    keeps_error_text: bool = False
    """Whether the messages of errors are kept, which may quote prompts and answers."""
    keeps_segments: bool = False
    """Whether chat requests are kept as hashes of their parts."""
    project: str | None = None
    """The project and branch of every request; None: unknown."""
    git_branch: str | None = None
    upstreams: tuple[Upstream, ...] = ()
    billing: Callable[[Exchange], Billing | None] | None = None
    """The operator's own word on how an exchange is billed; None: what the wire says counts."""
    limits_of: Callable[[Dialect, dict[str, Any], bytes, Sequence[Row]], object] | None = None
    """Reads of a request what bounds its cost, from its members, bytes and parts; None: no cap
    asks."""
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """The memory that all exchanges of the run may keep."""

    def upstream_of(self, request: Request) -> Upstream | None:
        """The configured upstream that a request is for, by its name or its address."""
        hosts = (provider_table.normalised(request.host), request.address)
        for upstream in self.upstreams:
            is_port = upstream.port in (None, request.port)
            if is_port and provider_table.normalised(upstream.host) in hosts:
                return upstream
        return None


class Routes(Struct, frozen=True, kw_only=True):
    """How an exchange is read, by its method, host and path."""

    rules: RunRules
    """Of the run, when the request came."""
    route: Route
    session: Route | None
    """Of a WebSocket; None: no WebSocket is asked for, or none that is known."""
    is_handshake: bool
    """A WebSocket is asked for: its answer tells whether there is one."""
    is_named: bool
    """The operator has named the host, or the caller knows that this is a call."""
    is_served: bool
    """So it is, or the table of providers lists the host as one that serves LLMs alone."""
    is_confirmed: bool
    """Host and path confirm that it is a call."""
    origin: str
    provider: str
    path: str
    """Without the query, and with what looks like a key redacted."""
    began_at: datetime


class Asked(Struct, frozen=True, kw_only=True):
    """What is known of a request beside what the ledger stores of it while it is open."""

    facts: RequestFacts = RequestFacts()
    body: Body = NOT_KNOWN
    """As on the wire."""
    content_encoding: str = ""
    """Of the body; empty: none."""
    input_tokens: int | None = None
    """Estimate for an encoded body."""
    billing: Billing | None = None
    """As the request says it."""
    account: str | None = None
    """The account that the request names."""
    limits: object = None
    """What bounds its cost; None: nobody asked."""
    context: AnswerContext
    """What is known of the answer before it comes, but for its headers."""


def routes_of(request: Request, rules: RunRules, *, is_llm: bool = False) -> Routes | None:
    """How to read an exchange; None: it is no LLM call.

    At a host that serves LLMs, because the operator has named it or the table of providers lists
    it, every request counts that does not stand in the list of what is no call; where no route
    fits, its dialect is `unknown`. One without a body counts if its answer is a stream. Elsewhere,
    if the path matches, but host and body do not confirm an LLM call, its answer has to.
    """
    path = request.path.partition("?")[0]
    upstream = rules.upstream_of(request)
    is_named = upstream is not None or is_llm
    provider = upstream.provider if upstream is not None else None
    is_handshake = request.headers.get("upgrade", "").lower() == "websocket"
    session = None
    if is_handshake:
        session = table.match_websocket(request.host, path, is_named=is_named)
    route = table.match(request.method, request.host, path, is_named=is_named, named=provider)
    asks = request.method == "POST" or bool(request.body.data) or not request.body.is_whole
    if route is None and asks and request.method != "POST":
        route = table.match("POST", request.host, path, is_named=is_named, named=provider)
    if route is None:
        route = session
    is_sure = True
    if route is None:
        is_listed = not is_named and provider_table.serves_llms(request.host, path)
        if not (is_named or is_listed):
            return None
        if not is_llm and is_no_call(request.host, path, is_listed=is_listed):
            return None
        # What else asks than a POST, or a WebSocket, shows with the answer.
        is_socket = is_handshake and request.method == "GET" and not asks
        is_sure = is_llm or is_socket or request.method == "POST"
        route = table.UNKNOWN if is_sure or asks else table.UNKNOWN_FETCH
    is_served = is_named or route.host_is_known or route.needs_stream
    host = provider_table.normalised(request.host).strip("[]")
    return Routes(
        rules=rules,
        route=route,
        session=session,
        is_handshake=session is not None and route is session,
        is_named=is_named,
        is_served=is_served,
        is_confirmed=is_sure and (route.is_confirmed or is_served),
        origin=f"{request.scheme}://{f'[{host}]' if ':' in host else host}:{request.port}",
        provider=provider or provider_table.provider_of(request.host, path),
        path=_redacted(path[:PATH_LENGTH_MAX]),
        began_at=request.began_at,
    )


def unread(routes: Routes, *, exchange_id: str, source: Source) -> Exchange:
    """The exchange of a request that is not read."""
    dialect = routes.route.dialect
    return Exchange(
        id=exchange_id,
        origin=routes.origin,
        provider=routes.provider,
        dialect=dialect.name,
        operation=dialect.operation,
        path=routes.path,
        # The request's own time, which a saved flow includes, so that replay finds the same row.
        opened_at=routes.began_at,
        source=source,
        node=routes.rules.node,
    )


def nothing_asked(routes: Routes) -> Asked:
    """What is known of a request that is not read."""
    context = AnswerContext(
        provider=routes.provider,
        path_model=routes.route.path_model,
        tier_is_asked=routes.path.startswith(billing.CHATGPT_PATH),
        keeps_error_text=routes.rules.keeps_error_text,
    )
    return Asked(context=context)


def is_read_in_steps(request: Request) -> bool:
    """Whether the body of a live request takes so long that the event loop needs pauses."""
    # A few encoded bytes may decode to a megabyte.
    return len(request.body.data) > LARGE_BYTES or "content-encoding" in request.headers


def read(
    exchange: Exchange, request: Request, routes: Routes, troubles: Troubles
) -> Generator[None, None, tuple[Exchange, Asked]]:
    """The exchange of a request and what it asked, with pauses while a long body is read."""
    headers, route, rules = request.headers, routes.route, routes.rules
    path = request.path.partition("?")[0]
    encoding = headers.get("content-encoding", "").strip()
    if encoding.lower() == "identity":
        encoding = ""
    # The body, decoded.
    digest = None
    if request.body.is_whole and not routes.is_handshake:
        digest = yield from request_digest_in_steps(request.body.data)
    body = request.body
    if encoding:
        body = yield from decoded_body_in_steps(body, encoding, troubles)
    chat = NO_CHAT
    if rules.keeps_segments and route.dialect.operation in OPERATIONS:
        chat = yield from read_in_steps(body.data, rules.secret)
    secrets = attribution.credentials_of(headers, request.path)
    values = chat.values
    if rules.limits_of is not None and values is None and len(body.data) <= PARSED_BYTES_MAX:
        fields = route.dialect.request_message
        values = grpc.read_request(body.data, fields) if fields else json_values.loads(body.data)
    facts = read_request(route, body.data, headers, values, secrets)
    # Whose it is.
    key = attribution.api_key_of(headers, request.path)
    fingerprint, hint = attribution.fingerprint_of(key, rules.secret) if key else (None, None)
    if attribution.is_password(headers):
        hint = None
    agent = agent_of(headers)
    session_id = headers.get(attribution.SESSION_HEADER) or agent.session_id
    tags = dict(rules.tags)
    if request.tag_headers and rules.takes_client_tags:
        tags = {**attribution.tags_of_headers(request.tag_headers, secrets), **tags}
    model = facts.model
    if model is None and routes.is_handshake:
        model = text_of(_in_query(request, "model"), secrets)  # as a WebSocket's URL names it
    opened = replace(
        exchange,
        path=_redacted(path[:PATH_LENGTH_MAX], secrets),
        request_model=model,
        streamed=facts.streamed,
        request_bytes=len(request.body.data) if request.body.is_whole else None,
        request_digest=digest,
        segments=chat.segments,
        purpose=purpose_of(agent.agent, headers, path, chat.shape),
        usage_asked=facts.usage_asked,
        key_fingerprint=fingerprint,
        key_hint=hint,
        user_agent=text_of(headers.get("user-agent"), secrets),
        end_user=facts.end_user,
        session_id=(text_of(session_id, secrets) if session_id else None) or facts.session_id,
        parent_session_id=text_of(agent.parent_session_id, secrets) if agent.agent else None,
        agent=agent.agent,
        project=rules.project,
        git_branch=rules.git_branch,
        tags=tags,
        # Anthropic's, and Azure's.
        api_version=token_of(
            text_of(headers.get("anthropic-version") or _in_query(request, "api-version"), secrets)
        ),
    )
    asked = Asked(
        facts=facts,
        body=request.body,
        content_encoding=encoding,
        input_tokens=estimate.input_tokens_of(body.data) if encoding and body.is_whole else None,
        billing=billing.of_request(
            headers,
            host=request.host,
            path=path,
            provider=opened.provider,
            has_key=fingerprint is not None,
            redacted=request.redacted,
        ),
        account=headers.get(limits.ASKED_ACCOUNT_HEADER),
        limits=rules.limits_of(route.dialect, values or {}, body.data, chat.parts)
        if rules.limits_of
        else None,
        context=replace(
            nothing_asked(routes).context,
            secrets=secrets,
            is_key_unknown=not secrets and exchange.source is Source.REPLAY,
            prompts=facts.prompts,
            choices=facts.choices,
        ),
    )
    return opened, asked


def account_of(
    answer: Mapping[str, str], asked: Asked, opened: Exchange, rules: RunRules
) -> str | None:
    """Keyed hash of the account or organization that an answer names, or its request.

    Keys of one account share its quotas and its prompt cache.
    """
    for header in limits.ACCOUNT_HEADERS:
        if name := answer.get(header):
            break
    else:
        name = asked.account
    if not name:
        return None
    text = f"{opened.provider} {name[:HEADER_LENGTH_MAX]}"
    return attribution.fingerprint_of(text, rules.secret)[0]


def decoded_body_in_steps(
    body: Body, content_encoding: str, troubles: Troubles
) -> Generator[None, None, Body]:
    """A decoded request body, with a pause after each piece; not whole if its encoding has no end;
    not known, with a note, if it cannot be decoded."""
    decoder = decoder_of(content_encoding) if body.data else None
    if decoder is None or not body.is_whole:
        return body if decoder is None else NOT_KNOWN
    pieces: list[bytes] = []
    size = 0
    for piece in decoder.decode(body.data):
        size += len(piece)
        if size > REQUEST_BYTES_MAX:
            troubles.add(f"a request that decodes to more than {REQUEST_BYTES_MAX} bytes")
            return NOT_KNOWN
        if len(pieces) >= REQUEST_PIECES_MAX:
            troubles.add(f"a request encoded in more than {REQUEST_PIECES_MAX} pieces")
            return NOT_KNOWN
        pieces.append(piece)
        yield
    if decoder.trouble is not None:
        troubles.add(f"request: {decoder.trouble}")
        return NOT_KNOWN
    return Body(b"".join(pieces), is_whole=decoder.is_whole)


_redacted = lru_cache(maxsize=PATHS_MAX)(attribution.redacted_path)


def _in_query(request: Request, name: str) -> str | None:
    """The first value that the query has for a name."""
    query = request.path.partition("?")[2][:QUERY_LENGTH_MAX]
    found = parse_qs(query).get(name) if f"{name}=" in query else None
    return found[0] if found else None
