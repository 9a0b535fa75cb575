"""Edge. Asking an upstream for usage in a client's name, and what its answers teach."""

from __future__ import annotations

from dataclasses import replace

from addon.dialects.dialect import Asking
from addon.metering import attribution
from addon.proxy.live import PROVEN_MAX, Live, Running, Unasked, plain
from addon.proxy.options import Inject
from addon.usage_opt_in import policy, rewrite
from ledger.model.records import Exchange, Outcome, Reading, UsageSource


def ask(running: Running, live: Live) -> None:
    """Ask for usage where the client did not and the policy says so; all of it or nothing."""
    flow = live.flow
    request = flow.request
    if live.is_recorded or not live.opened.streamed or live.request.usage_asked:
        return
    if live.route.dialect.asking is not Asking.STREAM_OPTIONS:
        return
    if request.stream or attribution.is_signed(plain(request.headers), request.path):
        return
    if not _policy_asks(running, live):
        return
    body = request.get_content()
    asking = rewrite.ask(body) if body else None
    if asking is None:
        return
    unasked = Unasked(request.raw_content, request.headers.get("accept-encoding"))
    request.content = asking
    # An encoded answer cannot be edited as it passes.
    request.headers["accept-encoding"] = "identity"
    live.unasked = unasked
    live.opened = replace(live.opened, usage_injected=True)


def take_back(running: Running, live: Live) -> bool:
    """Undo the question if the answer refuses it; True: the request is to be sent once more."""
    flow = live.flow
    assert flow.response is not None
    if live.unasked is None or not rewrite.is_refusal(
        flow.response.status_code,
        flow.response.raw_content or b"",
        proven=(live.opened.origin, live.opened.path) in running.proven,
    ):
        return False
    request = flow.request
    request.raw_content = live.unasked.body
    if "content-length" in request.headers:
        request.headers["content-length"] = str(len(live.unasked.body or b""))
    if live.unasked.accept_encoding is None:
        request.headers.pop("accept-encoding", None)
    else:
        request.headers["accept-encoding"] = live.unasked.accept_encoding
    live.unasked = None
    live.opened = replace(live.opened, usage_injected=False, resent=True)
    live.tap = None
    return True


def learn(running: Running, live: Live, exchange: Exchange, reading: Reading) -> None:
    """Remember what an exchange taught about asking its upstream for usage."""
    if live.route.dialect.asking is not Asking.STREAM_OPTIONS or not exchange.streamed:
        return
    if exchange.outcome is not Outcome.COMPLETE:
        return
    upstream = (exchange.origin, exchange.path)
    if exchange.usage_injected:
        if len(running.proven) < PROVEN_MAX:
            running.proven.add(upstream)
        return
    if exchange.resent:
        verdict = policy.Verdict.REFUSES
    elif exchange.usage_asked or policy.is_known(exchange.provider):
        return
    elif reading.usage_source is UsageSource.REPORTED or _is_no_openai_stream(live):
        verdict = policy.Verdict.AUTOMATIC
    else:
        verdict = policy.Verdict.OPT_IN
    lesson = policy.lesson(*upstream, verdict, now=exchange.opened_at, known=running.ledger.learned)
    if lesson is not None:
        running.ledger.learn(lesson)


def _is_no_openai_stream(live: Live) -> bool:
    """A wire that only looks like OpenAI's (the `stream:chat:` endpoint): its usage comes and
    goes as it pleases, and what we took out would be what the client should have had."""
    return live.tap is not None and live.tap.meter.facts.closes_without_mark


def _policy_asks(running: Running, live: Live) -> bool:
    settings = running.settings
    if settings.inject is not Inject.AUTO:
        return settings.inject is Inject.ALWAYS
    opened = live.opened
    learned = running.ledger.learned.get((opened.origin, opened.path))
    return policy.asks_of(opened.provider, learned, now=opened.opened_at)
