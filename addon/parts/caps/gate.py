"""Edge (the event loop). Keeps caps: asks before a request goes upstream, and counts what it cost.

    ask          `Held`: it goes; `Refusal`; `Waiting`: `wait` resolves it
    settled      an exchange is over, whatever ended it
    watch        reads the budgets file when it changes, and gives signs of life

A cap that only this process has is asked in memory. One of a period stands in a table that all
processes share (`asked_table.py`), which is asked for all requests that came meanwhile together. An
error of ours refuses: the operator asked for a cap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from addon.parts.caps.asked_table import AskedTable
from addon.parts.caps.holds import Holds
from addon.parts.caps.limits import Limits, is_free_call
from addon.proxy.authorising import Authoriser
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, Exchange, Reading, UsageSource
from ledger.parts.budgets.book import Book, Held, Refusal, Waiting
from ledger.parts.budgets.budgets_file import CapFile
from ledger.parts.budgets.caps import NOTHING, Amounts, Cap
from ledger.pricing.prices import PriceBook

if TYPE_CHECKING:
    from ledger.parts.budgets.shared import SharedCaps

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the budgets file and the other processes are looked at; a change counts within 3 s."""
RETRY_SECONDS = 0.1
"""How often the table is asked again for what waits: other processes settle, too."""
LATE_SECONDS = 1.0
"""How long a request that may not wait stands behind one that does."""
OURS = "tokentee: refused: Tokentee failed and could not check the caps; see its log"


class Gate(Authoriser):
    """The caps of one recording."""

    def __init__(
        self,
        *,
        own: tuple[Cap, ...],
        prices: PriceBook,
        file: CapFile,
        shared: Callable[[], SharedCaps],
    ) -> None:
        """`own`: the caps of the command line; `shared`: opens the table."""
        self.book = Book()
        self._on_change: Callable[[], None] = lambda: None
        self._own = own
        self._holds = Holds(prices)
        self._read_prices = prices.read_lists
        self._file = file
        self._table = AskedTable(shared)
        self._turn: asyncio.Task[None] | None = None
        """The question that is under way."""
        self._is_stirred = False
        """Something changed since the last one."""
        self._trouble = ""
        """Why the file is not in force, if it is not."""
        self._held: dict[str, Held] = {}
        """Under way, by the id of the exchange."""
        self._futures: dict[Waiting, asyncio.Future[Held | Refusal]] = {}

    # Asking

    def ask(
        self,
        exchange: Exchange,
        limits: object,
        *,
        fields: Mapping[str, str],
        billing: Billing | None,
        waits: bool = True,
    ) -> Held | Waiting | Refusal:
        """Whether a request may go upstream; `fields`: the billing fields that it states; `waits`:
        whether it may wait for requests under way."""
        try:
            if limits is None:  # it was read before there was a cap
                return Held(exchange, NOTHING, ())
            assert isinstance(limits, Limits), limits
            if is_free_call(exchange.path, exchange.operation):
                return Held(exchange, NOTHING, ())
            hold, why = self._holds.hold(exchange, limits, fields, billing)
            found = self.book.ask(exchange, hold, why, waits=waits)
        except Exception:  # the guard between our bugs and the operator's money
            logger.exception("tokentee: the caps could not be checked, so the request is refused")
            found = Refusal("", OURS)
        return self._noted(found)

    @property
    def is_active(self) -> bool:  # type: ignore[override]
        """Whether there is a cap."""
        return bool(self.book.caps)

    def held_as(self, held: Held, exchange: Exchange) -> Exchange:
        """The exchange of a response, which has its own id, takes its hold over."""
        self._held.pop(held.exchange.id, None)
        held.exchange = exchange
        self._held[exchange.id] = held
        return exchange

    def lost(self, held: Held) -> None:
        """A request went upstream, and nothing is known of its end."""
        self._end(held, Amounts())

    def leave(self, held: Held) -> None:
        """A client has left before its request went upstream."""
        self._end(held, NOTHING)

    def _end(self, held: Held, cost: Amounts) -> None:
        self._held.pop(held.exchange.id, None)
        self.book.settle(held, cost)
        self._free()

    async def wait(self, one: Waiting) -> Held | Refusal:
        """Wait for the table, and for requests under way, in order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Held | Refusal] = loop.create_future()
        self._futures[one] = future
        bound = loop.call_later(one.wait_seconds or LATE_SECONDS, self._give_up, one)
        self._ask_table()  # one more that waits lets no other go
        try:
            return self._noted(await future)
        finally:
            bound.cancel()
            self._futures.pop(one, None)
            self.book.waiting.pop(one, None)

    def _give_up(self, one: Waiting) -> None:
        refusal = self.book.give_up(one)
        future = self._futures.get(one)
        if refusal is not None and future is not None and not future.done():
            future.set_result(refusal)
        self._free()

    def _free(self) -> None:
        """Something changed: answer whom it concerns."""
        for one, found in self.book.freed():
            self._resolve(one, found)
        self._ask_table()
        self._tell()

    def _ask_table(self) -> None:
        self._is_stirred = True
        if self._turn is None and (self.book.waiting or self.book.changes):
            self._turn = asyncio.get_running_loop().create_task(self._turns())

    def _resolve(self, one: Waiting, found: Held | Refusal | None) -> None:
        future = self._futures.get(one)
        if found is not None and future is not None and not future.done():
            future.set_result(found)
        elif isinstance(found, Held):  # its client is gone
            self.book.settle(found, NOTHING)

    async def _turns(self) -> None:
        try:
            while self._is_stirred:
                self._is_stirred = False
                asking = self.book.to_reserve()
                changes, self.book.changes = self.book.changes, []
                if asking or changes:
                    answers = await self._table.turn(changes, asking, self.book.names)
                    for one, answer in zip(asking, answers, strict=True):
                        self._resolve(one, self.book.answered(one, answer))
                for one, found in self.book.freed():
                    self._resolve(one, found)
                self._is_stirred |= bool(self.book.changes)
        finally:
            self._turn = None
            self._tell()

    def _noted[F: Held | Waiting | Refusal](self, found: F) -> F:
        if isinstance(found, Held):
            self._held[found.exchange.id] = found
        self._tell()
        return found

    def _tell(self) -> None:
        for line in self.book.news:
            logger.warning("tokentee: %s", line)
        self.book.news.clear()

    # The end

    def settled(
        self, exchange: Exchange, reading: Reading | None, limits: object = None
    ) -> tuple[str, ...]:
        """An exchange is over; what its caps remark. `reading`: None: it was no call after all.
        `limits`: what its request said, if that is known."""
        if not (self.is_active or self._held):
            return ()
        try:
            held = self._held.pop(exchange.id, None)
            cost = NOTHING if reading is None else self._holds.cost(exchange, reading, limits)
            if held is not None:
                self.book.settle(held, cost)
            elif reading is not None and reading.usage_source is UsageSource.REPORTED:
                self.book.count(exchange, cost)
            self._free()
        except Exception:
            logger.exception("tokentee: the cost of a request could not be added to its caps")
            return ()
        return held.remarks if held is not None else ()

    def shares(self) -> tuple[tuple[str, float], ...]:
        """The share of each cap that is spent now, of its fullest account. From any thread."""
        found = dict.fromkeys(self.book.caps, 0.0)
        for account in self.book.accounts(datetime.now(UTC)):
            for amount, limit in zip(account.spent, account.limits, strict=True):
                if limit and account.cap.name in found:
                    share = (amount or 0) / limit
                    found[account.cap.name] = max(found[account.cap.name], share)
        return tuple(found.items())

    # The file, and the other processes

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Look at the file and at the other processes until it is cancelled."""
        self._on_change = on_change
        look_at, loop = 0.0, asyncio.get_running_loop()
        while True:
            try:
                if loop.time() >= look_at:
                    look_at = loop.time() + LOOK_SECONDS
                    await self._look()
                if self.book.waiting or self.book.changes:
                    self._free()
            except Exception:  # what is in force stays, and the task goes on
                logger.exception("tokentee: the caps could not be looked at")
            await asyncio.sleep(RETRY_SECONDS if self.book.waiting else LOOK_SECONDS / 4)

    async def _look(self) -> None:
        try:
            changed = await asyncio.to_thread(self._file.changed, self._own)
            before = tuple(self.book.caps.values()), self.book.names
            if changed is not None and changed != before:
                caps, names = changed
                if caps:
                    await asyncio.to_thread(self._read_prices)
                self.book.set_caps(caps, names)
                self._on_change()
                logger.info("tokentee: %d caps are in force", len(caps))
            self._trouble = ""
        except LedgerError as error:
            if str(error) != self._trouble:
                text = "tokentee: the budgets file is not used, and the caps stay as they were: %s"
                logger.error(text, error)  # noqa: TRY400
            self._trouble = str(error)
        accounts, names = self.book.current(datetime.now(UTC)), self.book.names
        if not any(cap.is_shared for cap in self.book.caps.values()):
            return
        standings = await self._table.look(accounts, names)
        for account, standing in zip(accounts, standings, strict=False):
            self.book.noted(account, standing)
        self._tell()

    def release(self) -> None:
        """Tell the table what is left to tell, when all is over."""
        changes, self.book.changes = self.book.changes, []
        self._table.release(changes, self.book.names)


def with_hold(exchange: Exchange, held: Held) -> Exchange:
    """The exchange with what is held for it, which counts if its cost never becomes known."""
    return (
        replace(
            exchange,
            hold_picousd=held.amounts.usd,
            hold_list_value_picousd=held.amounts.list_value_usd,
            hold_tokens=held.amounts.tokens,
        )
        if held.accounts
        else exchange
    )
