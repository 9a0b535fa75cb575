"""Database. The public view `requests` for queries: one row per exchange that counts."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ledger.store.schema.columns import Instant

REQUEST_COLUMNS: Mapping[str, str] = {
    "opened_at": "instant",
    "id": "text",
    "response_id": "text",
    "state": "text",
    "outcome": "text",
    "source": "text",
    "origin": "text",
    "provider": "text",
    "dialect": "text",
    "operation": "text",
    "path": "text",
    "model": "text",
    "request_model": "text",
    "response_model": "text",
    "streamed": "boolean",
    "http_status": "integer",
    "finish_reason": "text",
    "error_type": "text",
    "error_code": "text",
    "error_message": "text",
    "service_tier": "text",
    "first_byte_at": "instant",
    "first_token_at": "instant",
    "settled_at": "instant",
    "first_token_ms": "integer",
    "duration_ms": "integer",
    "usage_source": "text",
    "input_tokens": "integer",
    "uncached_input_tokens": "integer",
    "cache_read_tokens": "integer",
    "cache_write_tokens": "integer",
    "cache_write_5m_tokens": "integer",
    "cache_write_1h_tokens": "integer",
    "output_tokens": "integer",
    "reasoning_tokens": "integer",
    "input_audio_tokens": "integer",
    "output_audio_tokens": "integer",
    "estimated_input_tokens": "integer",
    "estimated_output_tokens": "integer",
    "tool_units": "text",
    "extra_input_tokens": "integer",
    "extra_output_tokens": "integer",
    "cost_picousd": "integer",
    "estimated_cost_picousd": "integer",
    "cost_state": "text",
    "billing": "text",
    "list_value_picousd": "integer",
    "reported_cost_picousd": "integer",
    "reported_upstream_cost_picousd": "integer",
    "is_byok": "boolean",
    "usage_json": "text",
    "remarks": "text",
    "key_fingerprint": "text",
    "key_hint": "text",
    "user_agent": "text",
    "end_user": "text",
    "session_id": "text",
    "tags": "text",
    "project": "text",
    "git_branch": "text",
    "agent": "text",
    "purpose": "text",
    "cache_diagnosis": "text",
    "account": "text",
    "retry_after_ms": "integer",
    "parent_session_id": "text",
    "tool_calls": "integer",
    "usage_asked": "boolean",
    "usage_injected": "boolean",
    "usage_stripped": "boolean",
    "resent": "boolean",
    "degraded": "text",
    "request_bytes": "integer",
    "response_bytes": "integer",
    "client_bytes": "integer",
    "removed_bytes": "integer",
    "events": "integer",
    "id_unstable": "boolean",
    "id_collision": "boolean",
    "request_digest": "text",
    "node": "text",
    "capture": "text",
    "reading_id": "text",
    "reading_revision": "integer",
    "meter_version": "text",
}
"""Column -> type of its values: all columns of the view but those in USD, which are for reading."""

_SQL_TYPES: Mapping[str, Any] = {
    "text": sa.Text,
    "integer": sa.BigInteger,
    "boolean": sa.Boolean,
    "instant": Instant,
}

requests = sa.table(
    "requests",
    *(sa.column(name, _SQL_TYPES[kind]) for name, kind in REQUEST_COLUMNS.items()),
)


def is_billed(of: sa.FromClause = requests) -> sa.ColumnElement[bool]:
    """Whether the charges of a request are part of its cost: its usage was reported, and is billed
    by tokens (`ledger.store.schema.charged.cost`)."""
    return (of.c.usage_source != "estimated") & of.c.billing.not_in(("plan", "free"))
