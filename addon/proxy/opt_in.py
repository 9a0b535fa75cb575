"""Edge. The question for usage that a client did not ask: whether it is needed, into the client's
request, out again where it is refused, and what an answer teaches of its upstream."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from addon.dialects.dialect import Asking
from addon.dialects.facts import ChoiceFacts, Ending, Fingerprint
from addon.framing.long_json import without_pauses
from addon.metering import attribution
from addon.metering.messages import header_map
from addon.metering.opening import decoded_body_in_steps
from addon.metering.settlement import Settled
from addon.proxy import flows
from addon.proxy.live import Live, OriginalRequest
from addon.proxy.options import Inject
from addon.usage_opt_in import asking, policy
from ledger.model.exchange import Outcome, UsageSource
from ledger.store.writing.writer import Ledger

PROVEN_MAX = 10_000
"""Upstreams and paths that answered a question for usage; bounded, since a client can invent
paths without end."""
ENCODED_BYTES_MAX = 64 * 1024
"""A larger compressed request is not edited: compressing it again would block the event loop."""
EDITED_BYTES_MAX = 16 * 1024 * 1024
"""A larger request is not edited: searching and copying it would block the event loop (0.8 ms for
each MB), and both copies are kept until the exchange ends."""


def is_needed(live: Live, inject: Inject, ledger: Ledger) -> bool:
    """Whether to ask for usage that the client did not ask for."""
    opened = live.opened
    if live.is_recorded or not opened.streamed or opened.usage_asked:
        return False
    if live.route.dialect.asking is not Asking.STREAM_OPTIONS:
        return False
    if inject is not Inject.AUTO:
        return inject is Inject.ALWAYS
    learned = ledger.learned.get((opened.origin, opened.path))
    return policy.asks_of(
        opened.provider, learned, now=opened.opened_at, is_named=live.routes.is_named
    )


def inject(live: Live) -> None:
    """Ask for usage in the client's name. Either all of the request is edited or nothing: what can
    fail is done before the first change."""
    request, asked = live.flow.request, live.asked
    headers = header_map(request.headers.fields)
    if request.stream or attribution.is_signed(headers, request.path):
        return
    is_encoded = "content-encoding" in headers
    bytes_max = ENCODED_BYTES_MAX if is_encoded else EDITED_BYTES_MAX
    if len(request.raw_content or b"") > bytes_max:
        return
    body = asked.body
    if asked.content_encoding:
        body = without_pauses(decoded_body_in_steps(body, asked.content_encoding, live.troubles))
    edited = asking.inject_usage_option(body.data) if body.is_whole and body.data else None
    if edited is None:
        return
    original = OriginalRequest(request.raw_content, request.headers.get("accept-encoding"))
    # An encoded answer cannot be edited as it passes.
    changed = {b"accept-encoding": b"identity"}
    if not is_encoded and "transfer-encoding" not in headers:
        changed[b"content-length"] = b"%d" % len(edited)
    fields = flows.with_headers(request.headers, changed)
    live.mark_injected()
    live.original = original
    request.headers.fields = fields
    if is_encoded:
        request.content = edited  # encoded as it was
    else:
        request.raw_content = edited


def revert_if_refused(live: Live, proven: AbstractSet[tuple[str, str]]) -> bool:
    """Remove the question if the answer refuses it; True: the request must be sent again."""
    response = live.flow.response
    opened = live.opened
    assert response is not None
    if live.original is None or not asking.is_refusal(
        response.status_code,
        response.raw_content or b"",
        proven=(opened.origin, opened.path) in proven,
    ):
        return False
    request = live.flow.request
    request.raw_content = live.original.body
    if "content-length" in request.headers:
        request.headers["content-length"] = str(len(live.original.body or b""))
    if live.original.accept_encoding is None:
        request.headers.pop("accept-encoding", None)
    else:
        request.headers["accept-encoding"] = live.original.accept_encoding
    live.original = None
    live.drop_capture()
    live.revert_injection()
    return True


def learn(
    live: Live,
    settled: Settled,
    *,
    proven: set[tuple[str, str]],
    doubted: set[tuple[str, str]],
    ledger: Ledger,
) -> None:
    """Remember whether the upstream of an exchange reports usage unasked, asked, or refuses. One
    that answered the question joins the `proven`.

    Of usage that comes beside what we asked for, the client should get what it would get without
    us. So the next stream is not asked, and shows which that is; this happens once in a run
    (`doubted`), since a server may give both only if it is asked.
    """
    exchange, reading = settled
    if live.route.dialect.asking is not Asking.STREAM_OPTIONS or not exchange.streamed:
        return
    if exchange.outcome is not Outcome.COMPLETE:
        return
    upstream = (exchange.origin, exchange.path)
    seen = live.tap.meter.facts.rare.choices if live.tap is not None else ChoiceFacts()
    moves = seen.fingerprint is Fingerprint.LAST
    if exchange.usage_injected:
        if len(proven) < PROVEN_MAX:
            proven.add(upstream)
        is_doubtful = seen.has_usage_unasked and not policy.is_known(exchange.provider)
        is_doubtful = is_doubtful and upstream not in doubted
        if not moves and not is_doubtful:
            return
        if not moves and len(doubted) < PROVEN_MAX:
            doubted.add(upstream)
    # The `stream:chat:` endpoint only resembles OpenAI's: it reports usage in some streams, and
    # stripping would remove usage that the client should get.
    resembles = live.tap is not None and live.tap.meter.facts.ending is Ending.CLOSE
    if exchange.resent:
        verdict = policy.UsageHabit.REFUSES
    elif exchange.usage_injected:
        verdict = policy.UsageHabit.MOVES if moves else policy.UsageHabit.AUTOMATIC
    elif exchange.usage_asked or policy.is_known(exchange.provider):
        return
    elif reading.usage_source is UsageSource.REPORTED or resembles:
        verdict = policy.UsageHabit.AUTOMATIC
    elif moves:
        verdict = policy.UsageHabit.MOVES
    else:
        verdict = policy.UsageHabit.OPT_IN
    lesson = policy.lesson(*upstream, verdict, now=exchange.opened_at, known=ledger.learned)
    if lesson is not None:
        ledger.learn(lesson)
