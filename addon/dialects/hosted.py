"""Pure. Sessions of hosted agents: what they state of single model requests, and running totals.

https://platform.claude.com/docs/en/managed-agents/overview (`types.beta` of anthropic 2.14.0)
https://developers.openai.com/api/docs/guides/agents-api (`types.beta` of openai 3.57.0)

Nothing that passes on the wire is a model request: the provider runs the agent, and the client
reads the session, its events or its turns, as often as it likes. So such an answer has no figures
of its own; what starts work is an order, and each statement becomes a row (`metering/hosted.py`):

    a request   `span.model_request_end`, or a turn that is over; known by its id
    a total     of the session object, or of an event with it: tokens, active seconds, list cost;
                the ledger books what it has not booked yet (`store/writing/running_totals.py`)

Evaluations of outcomes sum up requests of their own; the total has them.
"""

from collections.abc import Mapping
from dataclasses import replace as variant
from typing import Any

from msgspec.structs import replace

from addon.dialects.counts import Counts, fallen, lookup, object_at, objects_at
from addon.dialects.dialect import Dialect, Mark
from addon.dialects.errors import anthropic_refusal, openai_refusal, record_error_in
from addon.dialects.facts import Ending, Facts, Stated, id_of, name_of
from addon.dialects.openai import responses
from addon.dialects.vendors import anthropic
from ledger.model.exchange import SESSION_CALL
from ledger.model.usage import Usage, count_of, sum_of

FALLS_MAX = 16
STATED_MAX = 1_000
"""Statements of one answer; the total has the requests beyond."""
ANTHROPIC_ORDERS = ("/v1/sessions", "/sessions/{}/events")
"""What a POST starts work at."""
ANTHROPIC_PATHS = (
    *("/v1/sessions", "/v1/sessions/{}", "/sessions/{}/archive"),
    *("/sessions/{}/events", "/sessions/{}/events/stream"),
    *("/sessions/{}/threads", "/sessions/{}/threads/{}", "/sessions/{}/threads/{}/archive"),
    *("/sessions/{}/threads/{}/events", "/sessions/{}/threads/{}/stream"),
)
OPENAI_ORDERS = ("/agents/sessions", "/agents/sessions/{}/events", "/agents/sessions/{}/turns")
OPENAI_PATHS = (
    *("/agents/sessions", "/agents/sessions/{}", "/agents/sessions/{}/events"),
    *("/agents/sessions/{}/turns", "/agents/sessions/{}/turns/{}"),
)
SESSION_MILLISECONDS = "session_milliseconds"
"""The unit of active time."""
_PICOUSD_PER_CENT = 10**10
_CENTS_LENGTH_MAX = 10
_OVER = ("completed", "failed", "cancelled")


def _state(facts: Facts, usage: object, **about: Any) -> None:
    """Keep a statement (`about`: as in `Stated`); of totals of one session the last counts, and
    says so if it fell."""
    one = Stated(usage=facts.plain_usage(usage) if isinstance(usage, dict) else {}, **about)
    stated = facts.rare.stated
    if one.request_id is None:
        before = [old for old in stated if not old.request_id and old.session_id == one.session_id]
        fell = [each for old in before for each in (*old.fell, *fallen(old.usage, one.usage))]
        one = replace(one, fell=tuple(dict.fromkeys(fell))[:FALLS_MAX])
        stated[:] = [old for old in stated if old.request_id or old.session_id != one.session_id]
    if len(stated) < STATED_MAX:
        stated.append(one)


def read_anthropic(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a session, a list of sessions or events, or one event of a stream."""
    facts.token_seen = True  # from now on, frames with a mark are enough
    record_error_in(facts, event, body)
    for one in objects_at(body, "data") or [body]:
        match one.get("type"):
            case "session":
                model = name_of(lookup(one, "agent.model.id") or lookup(one, "agent.model"))
                _state(facts, one.get("usage"), session_id=id_of(one.get("id")), model=model)
            case "session.usage":
                _state(facts, one.get("usage"), at=one.get("processed_at"))
            case "span.model_request_end" if request_id := id_of(one.get("id")):
                at = one.get("processed_at")
                _state(facts, one.get("model_usage"), request_id=request_id, at=at)
            case _:
                pass


def anthropic_usage_of(usage: Mapping[str, Any], facts: Facts) -> Usage:
    """The figures: of a total the sum of cache writes is missing, and active time is billed."""
    lifetimes = object_at(usage, "cache_creation") or {}
    if "cache_creation_input_tokens" not in usage:
        written = sum_of(*(count_of(lifetimes.get(key)) for key in _LIFETIMES))
        usage = {**usage, "cache_creation_input_tokens": written}
    found = anthropic.usage_of(usage, facts)
    active = Counts(usage).milliseconds("active_seconds")
    units = {SESSION_MILLISECONDS: active} if active is not None else {}
    cents = lookup(usage, "list_cost.amount")
    is_known = lookup(usage, "list_cost.currency") == "USD" and isinstance(cents, str)
    if is_known and cents.isascii() and cents.isdigit() and len(cents) <= _CENTS_LENGTH_MAX:
        found = replace(found, reported_cost_picousd=int(cents) * _PICOUSD_PER_CENT)
    return replace(found, tool_units={**found.tool_units, **units})


_LIFETIMES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def read_openai(facts: Facts, event: str, body: dict[str, Any]) -> None:
    """Read a session, a list of sessions or turns, or one event of a stream."""
    facts.token_seen = True
    record_error_in(facts, event, body)
    for one in objects_at(body, "data") or [body]:
        session = object_at(one, "session") or one
        turn = object_at(one, "turn") or one
        if session.get("object") == "agent.session":
            model = name_of(lookup(session, "agent.model"))
            _state(facts, session.get("usage"), session_id=id_of(session.get("id")), model=model)
        elif turn.get("object") == "agent.session.turn" and turn.get("status") in _OVER:
            usage = turn.get("usage") or one.get("usage")
            turn_id, session_id = id_of(turn.get("id")), id_of(turn.get("session_id"))
            if turn_id and isinstance(usage, dict) and facts.plain_usage(usage):
                at = turn.get("completed_at") or turn.get("created_at")
                _state(facts, usage, session_id=session_id, request_id=turn_id, at=at)


ANTHROPIC_SESSIONS = Dialect(
    name="anthropic.sessions",
    operation=SESSION_CALL,
    read=read_anthropic,
    usage_of=anthropic_usage_of,
    refusal=anthropic_refusal,
    known_keys=anthropic.KNOWN_KEYS | {"active_seconds", "list_cost", "list_cost.*"},
    marks=(Mark(b"usage"), Mark(b'"error"')),
    ending=Ending.CLOSE,
)
OPENAI_SESSIONS = variant(
    ANTHROPIC_SESSIONS,
    name="openai.agent_sessions",
    read=read_openai,
    usage_of=responses.RESPONSES.usage_of,
    refusal=openai_refusal,
    known_keys=responses.RESPONSES.known_keys,
)
