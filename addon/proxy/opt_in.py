"""Edge. Adds the question for usage to a client's request, and learns from the answers."""

from __future__ import annotations

from addon.dialects.dialect import Asking
from addon.dialects.facts import Ending
from addon.metering.requests import attribution
from addon.metering.requests.messages import header_map
from addon.metering.settlement import Settled
from addon.proxy import capturing, flows
from addon.proxy.options import Inject
from addon.proxy.running import PROVEN_MAX, Live, OriginalRequest, Running
from addon.usage_opt_in import asking, policy
from ledger.model.exchange import Exchange, Outcome, UsageSource

ENCODED_BYTES_MAX = 64 * 1024
"""A larger compressed request is not edited: compressing it again would block the event loop."""
EDITED_BYTES_MAX = 16 * 1024 * 1024
"""A larger request is not edited: searching and copying it would block the event loop (0.8 ms for
each MB), and both copies are kept until the answer begins."""


def ask(running: Running, live: Live) -> None:
    """Ask for usage if the client did not and the policy allows it. Either all of the request is
    edited or nothing: what can fail is done before the first change."""
    request = live.flow.request
    exchange = live.exchange
    if exchange.is_recorded or not exchange.opened.streamed or exchange.request.usage_asked:
        return
    if exchange.route.dialect.asking is not Asking.STREAM_OPTIONS:
        return
    headers = header_map(request.headers.fields)
    if request.stream or attribution.is_signed(headers, request.path):
        return
    if not _policy_asks(running, exchange.opened):
        return
    is_encoded = "content-encoding" in headers
    bytes_max = ENCODED_BYTES_MAX if is_encoded else EDITED_BYTES_MAX
    if len(request.raw_content or b"") > bytes_max:
        return
    body = exchange.request_body()
    edited = asking.inject_usage_option(body.data) if body.is_whole and body.data else None
    if edited is None:
        return
    original = OriginalRequest(request.raw_content, request.headers.get("accept-encoding"))
    # An encoded answer cannot be edited as it passes.
    changed = {b"accept-encoding": b"identity"}
    if not is_encoded and "transfer-encoding" not in headers:
        changed[b"content-length"] = b"%d" % len(edited)
    fields = flows.with_headers(request.headers, changed)
    exchange.mark_injected()
    live.original = original
    request.headers.fields = fields
    if is_encoded:
        request.content = edited  # encoded as it was
    else:
        request.raw_content = edited


def revert_if_refused(running: Running, live: Live) -> bool:
    """Remove the question if the answer refuses it; True: the request must be sent again."""
    response = live.flow.response
    opened = live.exchange.opened
    assert response is not None
    if live.original is None or not asking.is_refusal(
        response.status_code,
        response.raw_content or b"",
        proven=(opened.origin, opened.path) in running.proven,
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
    capturing.discard(live)
    live.exchange.revert_injection()
    return True


def learn(running: Running, live: Live, settled: Settled) -> None:
    """Remember whether the upstream of an exchange reports usage unasked, asked, or refuses."""
    exchange, reading = settled
    if live.exchange.route.dialect.asking is not Asking.STREAM_OPTIONS or not exchange.streamed:
        return
    if exchange.outcome is not Outcome.COMPLETE:
        return
    upstream = (exchange.origin, exchange.path)
    if exchange.usage_injected:
        if len(running.proven) < PROVEN_MAX:
            running.proven.add(upstream)
        return
    if exchange.resent:
        verdict = policy.UsageHabit.REFUSES
    elif exchange.usage_asked or policy.is_known(exchange.provider):
        return
    elif reading.usage_source is UsageSource.REPORTED or _may_end_without_mark(live):
        verdict = policy.UsageHabit.AUTOMATIC
    else:
        verdict = policy.UsageHabit.OPT_IN
    lesson = policy.lesson(*upstream, verdict, now=exchange.opened_at, known=running.ledger.learned)
    if lesson is not None:
        running.ledger.learn(lesson)


def _may_end_without_mark(live: Live) -> bool:
    """Whether the wire only resembles OpenAI's (the `stream:chat:` endpoint). It reports usage in
    some streams only, and stripping would remove usage that the client should get."""
    tap = live.exchange.tap
    return tap is not None and tap.meter.facts.ending is Ending.CLOSE


def _policy_asks(running: Running, opened: Exchange) -> bool:
    settings = running.settings
    if settings.inject is not Inject.AUTO:
        return settings.inject is Inject.ALWAYS
    learned = running.ledger.learned.get((opened.origin, opened.path))
    return policy.asks_of(opened.provider, learned, now=opened.opened_at)
