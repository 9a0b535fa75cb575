"""Edge (the event loop). Keeps caps: asks before a request goes upstream, and counts what it cost.

    ask          `Held`: it goes; `Refusal`; `Waiting`: `wait` resolves it
    settled      an exchange is over, whatever ended it
    watch        shares the caps with other processes, and reads the budgets file when it changes

Asking takes memory and prices that are read; no disk and no database. What this process may use of
a cap, it asks the ledger for ahead, in a thread (`ledger/caps/shared.py`). An error of ours
refuses: the operator asked for a cap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from addon.caps.holds import Holds
from addon.caps.limits import Limits
from ledger.budgets import budgets_file
from ledger.caps.book import Ask, Book, Held, Refusal, Waiting
from ledger.caps.caps import NOTHING, Amounts, Cap
from ledger.caps.leases import SLICE_SECONDS
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, Exchange, Reading, UsageSource
from ledger.pricing.prices import PriceBook
from ledger.settings import names_file
from ledger.settings.names import NO_NAMES, Names
from ledger.store.writing.writer import Ledger

if TYPE_CHECKING:
    from ledger.caps.shared import SharedCaps

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the budgets file is looked at; a change counts within 3 s."""
TELL_SECONDS = 1.0
"""How often the ledger is told what is used; slices last longer."""
RETRY_SECONDS = 0.25
"""The same while a request waits."""
PAUSE_SECONDS = 0.02
"""Between two questions to the ledger, each of a few milliseconds."""
OURS = "tokentee: refused: Tokentee failed and could not check the caps; see its log"


class Gate:
    """The caps of one recording."""

    def __init__(
        self,
        *,
        own: tuple[Cap, ...],
        prices: PriceBook,
        file: CapFile,
        is_written: Callable[[], bool],
    ) -> None:
        """`own`: the caps of the command line; `is_written`: whether the ledger has all that was
        settled."""
        self.book = Book(is_shared=True)
        self.wake = asyncio.Event()
        self._renewed_at = float("-inf")
        """When the last renewal of the slices began."""
        self._own = own
        self._holds = Holds(prices)
        self._read_prices = prices.read_lists
        self.file = file
        self._is_written = is_written
        self.on_change: Callable[[], None] = lambda: None
        """Called when other caps are in force."""
        self._trouble = ""
        """Why the file is not in force, if it is not."""
        self._cut = datetime.now(UTC)
        """What was settled before this is read from the ledger, what is settled since counts as
        it comes."""
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
    ) -> Held | Waiting | Refusal:
        """Whether a request may go upstream; `fields`: the billing fields that it states."""
        try:
            if limits is None:  # it was read before there was a cap
                return Held(exchange, NOTHING, ())
            assert isinstance(limits, Limits), limits
            hold, why = self._holds.hold(exchange, limits, fields, billing)
            book = self.book
            book.has_slices = time.monotonic() < self._renewed_at + SLICE_SECONDS
            found = book.ask(exchange, hold, why)
            if book.is_low or isinstance(found, Waiting):
                book.is_low = False
                self.wake.set()
        except Exception:  # the guard between our bugs and the operator's money
            logger.exception("tokentee: the caps could not be checked, so the request is refused")
            found = Refusal("", OURS)
        return self._noted(found)

    @property
    def is_active(self) -> bool:
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
        self._held.pop(held.exchange.id, None)
        self.book.settle(held, Amounts())

    async def wait(self, one: Waiting) -> Held | Refusal:
        """Wait for requests under way, or for a larger share, in order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Held | Refusal] = loop.create_future()
        self._futures[one] = future
        bound = loop.call_later(one.wait_seconds, self._give_up, one)
        try:
            return self._noted(await future)
        finally:
            bound.cancel()
            self._futures.pop(one, None)

    def _give_up(self, one: Waiting) -> None:
        future = self._futures.get(one)
        if future is not None and not future.done():
            future.set_result(self.book.give_up(one))
            self._free()

    def leave(self, held: Held) -> None:
        """A client has left before its request went upstream."""
        self._held.pop(held.exchange.id, None)
        self.book.settle(held, NOTHING)
        self._free()

    def _free(self) -> None:
        self.book.has_slices = time.monotonic() < self._renewed_at + SLICE_SECONDS
        for one, found in self.book.freed():
            future = self._futures.get(one)
            if future is not None and not future.done():
                future.set_result(found)
            elif isinstance(found, Held):  # its client is gone
                self.book.settle(found, NOTHING)
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
        now, found = datetime.now(UTC), dict.fromkeys(self.book.caps, 0.0)
        for account in self.book.accounts(now):
            for amount, limit in zip(account.all_spent_at(now), account.limits, strict=True):
                if limit:
                    share = (amount or 0) / limit
                    found[account.cap.name] = max(found.get(account.cap.name, 0.0), share)
        return tuple(found.items())

    # The file, and the ledger

    async def watch(self) -> None:
        """Share the caps, and read the budgets file again when it has changed, until it is
        cancelled."""
        look_at = 0.0
        while True:
            is_shared = any(cap.period != "run" for cap in self.book.caps.values())
            pause = TELL_SECONDS if is_shared else LOOK_SECONDS
            if self.book.waiting:
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), pause)
            self.wake.clear()
            try:
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_SECONDS
                    await self._look()
            except LedgerError as error:
                if str(error) != self._trouble:
                    text = (
                        "tokentee: the budgets file is not used, and the caps stay as they were: %s"
                    )
                    logger.error(text, error)  # noqa: TRY400
                self._trouble = str(error)
            except Exception:  # what is in force stays, and the task goes on
                logger.exception("tokentee: the budgets file could not be read")
            await self.share()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        if await asyncio.to_thread(self.file.has_changed):
            caps, names = await asyncio.to_thread(self.file.load, self._own)
            self._trouble = ""
            before = self.book.caps
            if caps != tuple(before.values()) or names != self.book.names:
                if caps:
                    await asyncio.to_thread(self._read_prices)
                self.book.set_caps(caps, names)
                self._cut = datetime.now(UTC)
                self.on_change()
                logger.info("tokentee: %d caps are in force", len(caps))
                left = [
                    cap
                    for cap in before.values()
                    if cap.period != "run"
                    and (cap.name not in self.book.caps or cap.name in self.book.incomplete)
                ]
                if left:
                    await asyncio.to_thread(lambda: self.file.shared().leave(left))

    async def share(self) -> None:
        """Tell the ledger what is used of the caps of periods, and take what is needed next."""
        book, names, cut = self.book, self.book.names, self._cut
        caps = [cap for cap in book.caps.values() if cap.period != "run"]
        if not caps:
            self._free()
            return
        new = [cap for cap in caps if cap.name in book.incomplete] if self._is_written() else []
        began, asks = time.monotonic(), list[Ask]()
        if began >= self._renewed_at + SLICE_SECONDS:
            self._renewed_at = float("-inf")
            book.lapse()
        try:
            joined = await asyncio.to_thread(
                lambda: [cap for cap in new if self.file.shared().join(cap, names, cut)]
            )
            if cut == self._cut:
                book.complete(joined, datetime.now(UTC))
            asks = book.asks(datetime.now(UTC))
            answers, short = await asyncio.to_thread(
                lambda: self.file.shared().exchange(caps, names, asks, datetime.now(UTC))
            )
        except Exception as error:
            book.failed(asks)
            is_known, before = isinstance(error, LedgerError), book.unreachable
            book.unreachable = str(error) if is_known else "Tokentee failed; see its log"
            if book.unreachable != before:
                logger.warning(
                    "tokentee: other proxies cannot be asked what they have spent of the caps: %s",
                    book.unreachable,
                    exc_info=None if is_known else error,
                )
        else:
            for answer in answers:
                book.granted(*answer)
            answered = {ask.account for ask, *_ in answers}
            book.failed(ask for ask in asks if ask.account not in answered)
            book.contend(short)
            self._renewed_at = began
            if book.unreachable:
                logger.warning("tokentee: the caps are shared with other proxies again")
            book.unreachable = ""
        self._free()


class CapFile:
    """The budgets file with its caps, and the ledger in which they are shared."""

    def __init__(self, ledger_url: str, *, node: str, written: Path) -> None:
        """`written`: the SQLite file of this process, the ledger or its spool."""
        self._url = ledger_url
        self._node = node
        self._written = written
        self._seen: object = None
        self._shared: SharedCaps | None = None

    def has_changed(self) -> bool:
        """Whether the file is another than at the last look."""
        seen: list[object] = []
        for path in (budgets_file.path_of(None), names_file.path_of(None)):
            try:
                found = path.stat() if path is not None else None
            except OSError:
                found = None
            seen.append(found and (found.st_mtime_ns, found.st_size, found.st_ino))
        changed, self._seen = seen != self._seen, seen
        return changed

    def load(self, own: tuple[Cap, ...]) -> tuple[tuple[Cap, ...], Names]:
        """The caps of the file, and these. LedgerError if they are wrong."""
        caps = (*own, *budgets_file.load_caps())
        for name, count in Counter(cap.name for cap in caps).items():
            if count > 1:
                raise LedgerError(f"{name!r} is the name of several caps")
        names = names_file.load(None) if caps else NO_NAMES
        return caps, names

    def shared(self) -> SharedCaps:
        """The shares of this process. It blocks, and so does what it is asked."""
        if self._shared is None:
            from ledger.caps.shared import SharedCaps  # imports SQLAlchemy

            self._shared = SharedCaps(self._url, node=self._node, file=self._written)
        return self._shared

    def release(self, book: Book) -> None:
        """Give back what is not used, when all is written."""
        if self._shared is not None:
            caps = [cap for cap in book.caps.values() if cap.period != "run"]
            now = datetime.now(UTC)
            with contextlib.suppress(LedgerError):  # then it is found out
                self._shared.exchange(caps, book.names, book.asks(now), now)
                self._shared.leave(caps)


def gate_of(ledger: Ledger, url: str, own: tuple[Cap, ...], prices: PriceBook) -> Gate:
    """The caps at the start. LedgerError if they are wrong."""
    file = CapFile(url, node=ledger.node, written=ledger.file)
    file.has_changed()
    caps, names = file.load(own)
    gate = Gate(
        own=own,
        prices=prices,
        file=file,
        is_written=lambda: not ledger.health().queued_rows,
    )
    if caps:
        prices.read_lists()
        gate.book.set_caps(caps, names)
        gate.wake.set()
    return gate


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
