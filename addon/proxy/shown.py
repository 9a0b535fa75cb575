"""Edge. What people are shown while the proxy runs: what to type next, the log line of an exchange
(`tee_log=exchanges`), and the comment that mitmweb and mitmproxy show in their list.

Comments are made only where mitmproxy has its `view` addon; mitmdump has none and pays nothing.
What the writer prices is held until its commit is reported, and then the event loop writes the
comment. A comment that a person wrote is never overwritten.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mitmproxy import hooks, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master

from addon.metering.settlement import Settled
from ledger.model.charge import Charge, cost_of
from ledger.model.exchange import Exchange, Outcome, Reading, UsageSource
from ledger.model.money import money_text, sum_of_known
from ledger.settings.small_files import expanded
from ledger.text import first_minute
from ledger.text.figures import until_text
from ledger.text.hints import as_typed
from ledger.text.printable import printable

if TYPE_CHECKING:
    import asyncio

    from ledger.store.writing.batches import Price
    from ledger.store.writing.incoming import OnCommit, Receipt

logger = logging.getLogger(__name__)

FLOWS_MAX = 5_000
"""Flows whose figures are kept; some 10 MB. mitmweb itself is slow long before."""
RESPONSES_MAX = 200
"""Of one WebSocket; a longer session shows its latest ones."""
HELD_MAX = 10_000
"""Priced exchanges whose commit is not reported yet."""


def say_what_is_next(master: Master) -> None:
    """Log the first minute's lines for the servers of this process; none without a server."""
    server = master.addons.get("proxyserver")
    options = master.options
    if not isinstance(server, Proxyserver):
        return
    listeners = [
        (each.mode.full_spec, str(address[0]), int(address[1]))
        for each in server.servers
        for address in each.listen_addrs
    ]
    authority = str(expanded(options.confdir) / "mitmproxy-ca-cert.pem")
    asks_password = bool(getattr(options, "proxyauth", None))
    for line in first_minute.lines_at_start(
        listeners, authority=authority, asks_password=asks_password
    ):
        named = getattr(options, "ledger_url", None) or None
        logger.info("tokentee: %s", as_typed(line, os.environ, named))
    if getattr(options, "save_stream_file", None) and not options.store_streamed_bodies:
        logger.warning("tokentee: %s", first_minute.SAVED_WITHOUT_BODIES)


def line_of(settled: Settled, price: Price) -> str:
    """Model, tokens, cost or what a plan covers, outcome and duration. A dash: not reported, or
    not known."""
    exchange, reading = settled
    usage = reading.usage
    model = exchange.model or exchange.dialect
    cached = f" ({usage.cache_read_tokens} cached)" if usage.cache_read_tokens else ""
    took = until_text(exchange.settled_at, exchange.opened_at) or "-"
    charges = price(exchange, reading)
    found = cost_of(reading, charges)
    cost = f"{reading.billing} " if found.is_covered else ""
    if (amount := found.shown_picousd) is not None:
        cost += f"{'' if found.is_complete else '>= '}{money_text(amount)}"
    cost = cost.strip() or ("unpriced" if charges else "-")
    return (
        f"{printable(model)} in {_shown(usage.input_tokens)}{cached} "
        f"out {_shown(usage.output_tokens)} {cost} {exchange.outcome} {took}"
    )


def _shown(figure: int | None) -> str:
    return "-" if figure is None else str(figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedFlow:
    """One exchange as it was committed."""

    exchange: Exchange
    reading: Reading
    charges: tuple[Charge, ...]


class FlowComments:
    """The comments of the flows of one master that has a view."""

    def __init__(self, master: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._master = master
        self._loop = loop
        self._booked: OrderedDict[str, deque[BookedFlow]] = OrderedDict()
        self._comments: dict[str, str] = {}
        """The comments that we wrote, so that a person's are recognised."""
        self._priced: OrderedDict[str, BookedFlow] = OrderedDict()
        """Of the writer's thread alone."""
        self._committed: deque[BookedFlow] = deque()
        self._is_called = False

    def pricing(self, price: Price) -> Price:
        """The writer's price function, which remembers what it priced."""

        def priced(exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
            charges = price(exchange, reading)
            self._priced[exchange.id] = BookedFlow(
                exchange=exchange, reading=reading, charges=charges
            )
            if len(self._priced) > HELD_MAX:
                self._priced.popitem(last=False)
            return charges

        return priced

    def on_commit(self, then: OnCommit) -> OnCommit:
        """The writer's commit callback. Calls `then` first: clients wait for it. At most one
        wake-up of the loop is under way."""

        def committed(receipts: Sequence[Receipt]) -> None:
            then(receipts)
            found = [
                booked
                for receipt in receipts
                if (booked := self._priced.pop(receipt.exchange_id, None)) and receipt.committed
            ]
            self._committed.extend(found)
            if found and not self._is_called:
                self._is_called = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._write)

        return committed

    def _write(self) -> None:
        self._is_called = False  # first, so that a later batch calls again
        changed: dict[str, http.HTTPFlow] = {}
        view = self._master.addons.get("view")
        while self._committed:
            booked = self._committed.popleft()
            flow_id = booked.exchange.id.partition("/")[0]
            responses = self._booked.setdefault(flow_id, deque(maxlen=RESPONSES_MAX))
            responses.append(booked)
            if len(self._booked) > FLOWS_MAX:
                oldest, _ = self._booked.popitem(last=False)
                self._comments.pop(oldest, None)
            flow = view.get_by_id(flow_id) if view is not None else None
            if isinstance(flow, http.HTTPFlow):
                if flow.comment in ("", self._comments.get(flow.id)):
                    flow.comment = self._comments[flow.id] = comment_of(responses)
                if booked.exchange.outcome is Outcome.COMPLETE and flow.response is not None:
                    # A client that has read `[DONE]` may leave while we wait for the commit; its
                    # answer was whole, and mitmweb would mark it red because of our wait.
                    flow.error = None
                changed[flow_id] = flow
        if changed:
            self._master.addons.trigger(hooks.UpdateHook(list(changed.values())))


def comments_if_viewed(master: Any, loop: asyncio.AbstractEventLoop) -> FlowComments | None:
    """Comments for the flows of a master that shows flows; None for any other."""
    return None if master.addons.get("view") is None else FlowComments(master, loop)


def comment_of(booked: Sequence[BookedFlow]) -> str:
    """`in 1 204 (1 024 cached) out 87 · $0.0031`; of a WebSocket, over all its responses."""
    parts = []
    if len(booked) > 1:
        parts.append(f"{_spaced(len(booked))} responses")
    parts.append(_tokens(booked))
    parts.append(_cost(booked))
    outcome = booked[-1].exchange.outcome
    if outcome not in (None, Outcome.COMPLETE):
        parts.append(str(outcome).replace("_", " "))
    if any(each.exchange.degraded for each in booked):
        parts.append("degraded")
    return " · ".join(filter(None, parts))


def _tokens(booked: Sequence[BookedFlow]) -> str:
    known = [each for each in booked if each.reading.usage_source is not UsageSource.NONE]
    if not known:
        return "no usage reported"
    about = "~" if any(each.reading.usage_source is UsageSource.ESTIMATED for each in known) else ""
    total_in = sum_of_known([each.reading.usage.input_tokens for each in known])
    cached = sum_of_known([each.reading.usage.cache_read_tokens for each in known])
    total_out = sum_of_known([each.reading.usage.output_tokens for each in known])
    part = f" ({_spaced(cached)} cached)" if cached else ""
    return f"in {_count(total_in, about)}{part} out {_count(total_out, about)}"


def _cost(booked: Sequence[BookedFlow]) -> str:
    """A cost with lines missing is a lower bound; one with none known is not zero. What a plan
    covers has its list value."""
    found = [cost_of(each.reading, each.charges) for each in booked]
    amount = sum_of_known([each.shown_picousd for each in found])
    plan = f"{booked[-1].reading.billing} " if found[-1].is_covered else ""
    has_usage = any(each.reading.usage_source is not UsageSource.NONE for each in booked)
    if amount is None:
        return plan.strip() or ("unpriced" if has_usage else "")
    bound = "" if all(each.is_complete for each in found) else "≥ "
    estimated = any(each.reading.usage_source is UsageSource.ESTIMATED for each in booked)
    return f"{plan}{bound}{'~' if estimated else ''}{money_text(amount)}"


def _count(count: int | None, about: str) -> str:
    return "?" if count is None else f"{about}{_spaced(count)}"


def _spaced(count: int | None) -> str:
    return "?" if count is None else f"{count:,}".replace(",", " ")
