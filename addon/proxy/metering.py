"""Edge. Sets a meter to an answer, and settles what it read: the same for live and replay."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from mitmproxy import http

from addon.metering import estimate
from addon.metering.meter import Meter
from addon.metering.settlement import NOTHING_PASSED, End, settle
from addon.metering.tap import Tap, place_of
from addon.proxy.live import Live
from addon.usage_opt_in import rewrite
from ledger.model.records import Exchange, Reading

logger = logging.getLogger(__name__)

REFUSED_BODY_BYTES_MAX = 64 * 1024
"""An error answer longer than this is not held back to see whether it refuses our question."""
HELD_BODY_BYTES_MAX = 16 * 1024 * 1024
"""A plain answer up to here is held until its reading is committed; the client of a longer one
may see its end first."""

STREAM_TYPES = (
    "text/event-stream",
    "application/x-ndjson",
    "application/stream+json",
    "application/vnd.amazon.eventstream",
)
"""Content types that are streams, whatever the request said (Ollama streams unless told not to)."""


def is_event_stream(content_type: str) -> bool:
    """Whether an answer is server-sent events, the one stream that usage is asked for in."""
    return content_type.lower().startswith("text/event-stream")


def is_held(response: http.Response, headers: Mapping[str, str], *, asked: bool) -> bool:
    """Whether mitmproxy is to hold an answer until it is complete, and its reading committed.

    A body under a content-length is over for the client with its last byte, before any hook could
    wait for the ledger; so a plain one is held (it is of no use to a client before it is whole),
    while a stream never is. And where we asked for usage, an error answer is held to see whether
    it refuses the question.
    """
    length = headers.get("content-length", "")
    if asked and response.status_code >= 400:
        return not length.isdigit() or int(length) <= REFUSED_BODY_BYTES_MAX
    if headers.get("content-type", "").lower().startswith(STREAM_TYPES):
        return False
    return length.isdigit() and int(length) <= HELD_BODY_BYTES_MAX


def tap_for(
    live: Live, response: http.Response, headers: Mapping[str, str], *, may_edit: bool
) -> Tap:
    """The tap for an answer whose headers have come."""
    content_type = headers.get("content-type", "")
    encoding = headers.get("content-encoding", "")
    if content_type.lower().startswith(STREAM_TYPES) and not live.opened.streamed:
        live.opened = replace(live.opened, streamed=True)
    edits = may_edit and live.unasked is not None and is_event_stream(content_type)
    if edits and encoding.strip().lower() not in ("", "identity"):
        logger.warning(
            "tokentee: %s sent %s though identity was asked for: usage stays in the stream",
            live.opened.origin,
            encoding,
        )
        edits = False
    meter = Meter(
        live.route.dialect,
        content_type=content_type,
        content_encoding=encoding,
        headers=headers,
        provider=live.opened.provider,
        status=response.status_code,
        path_model=live.route.path_model,
    )
    exchange_id = live.opened.id

    def say(failure: Exception) -> None:
        logger.warning(
            "tokentee: exchange %s passes unmetered from here: %s in %s",
            exchange_id,
            type(failure).__name__,
            place_of(failure),
        )

    stripper = rewrite.Stripper() if edits else None
    return Tap(meter, stripper=stripper, clock=time.time, on_failure=say)


def settled(live: Live, end: End, cause: str | None) -> tuple[Exchange, Reading]:
    """The exchange as it ended, and what was read from it."""
    tap = live.tap
    if tap is not None:
        tap.end()
    exchange, reading = settle(
        live.opened,
        end=end,
        status=live.status,
        meter=tap.meter if tap else None,
        passed=tap.passed() if tap else NOTHING_PASSED,
        estimate_input=lambda: estimate.input_tokens_of(live.flow.request.get_content() or b""),
        cause=cause,
        now=now(),
    )
    return (_as_timed(exchange, live.flow) if live.is_recorded else exchange), reading


def _as_timed(exchange: Exchange, flow: http.HTTPFlow) -> Exchange:
    """A recorded exchange with the times of its recording: when it was read says nothing of it."""
    response = flow.response
    begun = response.timestamp_start if response is not None else None
    ended = response.timestamp_end if response is not None else None
    return replace(
        exchange,
        first_byte_at=datetime.fromtimestamp(begun, UTC)
        if begun and begun > flow.request.timestamp_start
        else None,
        first_token_at=None,
        settled_at=datetime.fromtimestamp(ended, UTC) if ended else exchange.opened_at,
    )


def now() -> datetime:
    return datetime.now(UTC)
