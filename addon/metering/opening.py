"""Pure. A request -> the exchange to meter, or None if it is not an LLM call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from urllib.parse import parse_qs, urlsplit

from addon.dialects import billing, limits, routes
from addon.dialects.agents import NO_AGENT, agent_of, purpose_of
from addon.dialects.facts import AnswerContext, text_of
from addon.dialects.request import RequestFacts, read_request, short_in_steps
from addon.framing.large_json import without_pauses
from addon.metering.answers import estimate
from addon.metering.exchange import NOT_READ, MeteredExchange, Readable, decoded_body_in_steps
from addon.metering.memory_budget import MemoryBudget
from addon.metering.requests import attribution
from addon.metering.requests.messages import Request
from addon.metering.segments import NOT_READ as NO_CHAT
from addon.metering.segments import read_in_steps
from addon.metering.troubles import Troubles
from ledger.model import providers
from ledger.model.duplicates import request_digest_in_steps
from ledger.model.exchange import Billing, Exchange, Source
from ledger.model.segments import OPERATIONS

PATH_LENGTH_MAX = 512
HEADER_LENGTH_MAX = 256
PATHS_MAX = 256
"""Size of the cache of redacted paths: most clients request the same path repeatedly."""
LARGE_BYTES = 256 * 1024
"""A body up to this size is read in one step, in 5 ms at worst."""
QUERY_LENGTH_MAX = 4_096
"""Characters of a query that are searched for `model=`."""


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
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """The memory that all exchanges of the run may keep."""

    def upstream(self, host: str, port: int) -> Upstream | None:
        """The configured upstream for a host and port, or None."""
        for upstream in self.upstreams:
            if upstream.host == host and upstream.port in (None, port):
                return upstream
        return None


def open_exchange(
    request: Request,
    rules: RunRules,
    *,
    exchange_id: str,
    source: Source,
    troubles: Troubles,
    is_llm: bool = False,
    readable: Readable | None = None,
) -> MeteredExchange | None:
    """The exchange of a request to an LLM; None for any other traffic.

    A request with an unknown path counts as an LLM call if its host is configured, or if the caller
    knows that it is one (`is_llm`); its dialect is then `unknown`. If the path matches, but host
    and body do not confirm an LLM call, the exchange is unconfirmed until its answer confirms it.
    Unreadable parts are left out and noted in `troubles`. `readable`: the result of
    `readable_in_steps`, if the caller has it already.
    """
    headers = request.headers
    path, _, query = request.path.partition("?")
    upstream = _upstream_of(request, rules)
    is_handshake = _is_handshake(request)
    route = _route_of(request, is_named=upstream is not None or is_llm)
    if route is None:
        return None
    is_named = upstream is not None or is_llm
    attempt = troubles.attempt
    encoding = headers.get("content-encoding", "").strip()
    if readable is None:
        steps = readable_in_steps(request, troubles, rules)
        readable = attempt(without_pauses, steps) or NOT_READ
    secrets = attempt(attribution.credentials_of, headers, request.path) or ()
    facts = (
        attempt(read_request, route, readable.data, headers, readable.chat.values, secrets)
        or RequestFacts()
    )
    model = facts.model
    if is_handshake and model is None and query:
        model = text_of(attempt(_model_in, query), secrets)
    fingerprint, hint = attempt(_key_of, rules.secret, request) or (None, None)
    agent = attempt(agent_of, headers) or NO_AGENT
    session = headers.get(attribution.SESSION_HEADER) or agent.session_id
    provider = upstream.provider if upstream is not None else None
    opened = Exchange(
        id=exchange_id,
        origin=f"{request.scheme}://{request.host}:{request.port}",
        provider=provider or providers.provider_of(request.host, path),
        dialect=route.dialect.name,
        operation=route.dialect.operation,
        path=_redacted(path[:PATH_LENGTH_MAX], secrets),
        # The request's own time, which a saved flow includes, so that replay finds the same row.
        opened_at=request.began_at,
        request_model=model,
        streamed=facts.streamed,
        request_bytes=len(request.body.data) if request.body.is_whole else None,
        # A handshake has no body.
        request_digest=None if is_handshake else readable.digest,
        segments=readable.chat.segments if route.dialect.operation in OPERATIONS else None,
        purpose=attempt(purpose_of, agent.agent, headers, path, readable.chat.shape),
        usage_asked=facts.usage_asked,
        key_fingerprint=fingerprint,
        key_hint=hint,
        user_agent=text_of(headers.get("user-agent"), secrets),
        end_user=facts.end_user,
        session_id=text_of(session, secrets) or facts.session_id,
        parent_session_id=text_of(agent.parent_session_id, secrets),
        agent=agent.agent,
        project=rules.project,
        git_branch=rules.git_branch,
        tags=_tags(rules, request, troubles, secrets),
        source=source,
        node=rules.node,
    )
    asked = attempt(
        lambda: billing.of_request(
            headers,
            host=request.host,
            path=path,
            provider=opened.provider,
            has_key=fingerprint is not None,
            redacted=request.redacted,
        )
    )
    return MeteredExchange(
        opened,
        route=route,
        request=facts,
        body=request.body,
        content_encoding="" if encoding.lower() == "identity" else encoding,
        decoded_bytes=readable.decoded_bytes,
        encoded_tokens=readable.input_tokens,
        context=AnswerContext(
            provider=opened.provider,
            path_model=route.path_model,
            secrets=secrets,
            keeps_error_text=rules.keeps_error_text,
        ),
        is_handshake=is_handshake,
        is_confirmed=not route.is_fetch and (route.is_confirmed or is_named or facts.is_confirmed),
        troubles=troubles,
        budget=rules.budget,
        billing=asked,
        billing_of=rules.billing,
        account_of=partial(
            _account_of, rules.secret, headers.get(limits.ASKED_ACCOUNT_HEADER), opened.provider
        ),
    )


def _account_of(
    secret: bytes, asked: str | None, provider: str, answer: Mapping[str, str]
) -> str | None:
    """Keyed hash of the account or organization that an answer names, or its request.

    Keys of one account share its quotas and its prompt cache.
    """
    named = [answer.get(name) for name in limits.ACCOUNT_HEADERS]
    name = next(filter(None, [*named, asked]), None)
    if name is None:
        return None
    fingerprint, _ = attribution.fingerprint_of(f"{provider} {name[:HEADER_LENGTH_MAX]}", secret)
    return fingerprint


def is_read_in_steps(request: Request, rules: RunRules) -> bool:
    """Whether the body of a live request takes so long that the event loop needs pauses."""
    # A few encoded bytes may decode to a megabyte.
    if len(request.body.data) <= LARGE_BYTES and "content-encoding" not in request.headers:
        return False
    is_named = _upstream_of(request, rules) is not None
    return _route_of(request, is_named=is_named) is not None


def readable_in_steps(
    request: Request, troubles: Troubles, rules: RunRules
) -> Generator[None, None, Readable]:
    """The request body in the form to parse. With pauses."""
    encoding = request.headers.get("content-encoding", "")
    digest = None
    if request.body.is_whole:
        digest = yield from request_digest_in_steps(request.body.data)
    body = yield from decoded_body_in_steps(request.body, encoding, troubles)
    chat, data = NO_CHAT, b""
    route = _route_of(request, is_named=_upstream_of(request, rules) is not None)
    if rules.keeps_segments and route is not None and route.dialect.operation in OPERATIONS:
        chat = yield from read_in_steps(body.data, rules.secret)
    if chat.values is None:
        data, lost = yield from short_in_steps(body.data)
        if lost is not None:
            troubles.add(lost)
    return Readable(
        data=data,
        decoded_bytes=len(body.data),
        digest=digest,
        input_tokens=estimate.input_tokens_of(body.data) if encoding and body.is_whole else None,
        chat=chat,
    )


def _upstream_of(request: Request, rules: RunRules) -> Upstream | None:
    upstream = rules.upstream(request.host, request.port)
    if upstream is None and request.address is not None:
        upstream = rules.upstream(request.address, request.port)
    return upstream


def _is_handshake(request: Request) -> bool:
    return request.headers.get("upgrade", "").lower() == "websocket"


def _route_of(request: Request, *, is_named: bool) -> routes.Route | None:
    """How to read the exchange; None: it is not an LLM call."""
    path = request.path.partition("?")[0]
    if _is_handshake(request):
        return routes.match_websocket(request.host, path)
    route = routes.match(request.method, request.host, path)
    if route is None and is_named and request.method == "POST":
        return routes.UNKNOWN
    return route


_redacted = lru_cache(maxsize=PATHS_MAX)(attribution.redacted_path)


def _tags(
    rules: RunRules, request: Request, troubles: Troubles, secrets: tuple[str, ...]
) -> dict[str, str]:
    """The client's tags, if the rules accept them, overridden by the operator's."""
    if not request.tag_headers or not rules.takes_client_tags:
        return dict(rules.tags)
    of_client = troubles.attempt(attribution.tags_of_headers, request.tag_headers, secrets) or {}
    return {**of_client, **rules.tags}


def _model_in(query: str) -> str | None:
    """The model that a WebSocket's URL names."""
    found = parse_qs(urlsplit(f"?{query[:QUERY_LENGTH_MAX]}").query).get("model")
    return found[0] if found else None


def _key_of(secret: bytes, request: Request) -> tuple[str | None, str | None]:
    """Fingerprint and hint of the API key that a request carries."""
    key = attribution.api_key_of(request.headers, request.path)
    if not key:
        return None, None
    fingerprint, hint = attribution.fingerprint_of(key, secret)
    return fingerprint, None if attribution.is_password(request.headers) else hint
