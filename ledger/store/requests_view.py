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
    "estimated_output_tokens": "integer",
    "tool_units": "text",
    "extra_input_tokens": "integer",
    "extra_output_tokens": "integer",
    "cost_picousd": "integer",
    "cost_state": "text",
    "reported_cost_picousd": "integer",
    "reported_upstream_cost_picousd": "integer",
    "is_byok": "boolean",
    "usage_json": "text",
    "key_fingerprint": "text",
    "key_hint": "text",
    "user_agent": "text",
    "end_user": "text",
    "session_id": "text",
    "tags": "text",
    "project": "text",
    "git_branch": "text",
    "agent": "text",
    "parent_session_id": "text",
    "tool_calls": "integer",
    "request_bytes": "integer",
    "response_bytes": "integer",
    "events": "integer",
    "node": "text",
    "capture": "text",
    "reading_id": "text",
    "reading_revision": "integer",
    "meter_version": "text",
}
"""Column -> type of its values."""

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
