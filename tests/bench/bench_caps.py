"""What a request pays for its caps.

    python -m tests.bench.bench_caps

Microseconds of CPU of the event loop for a cap that the process has alone, and milliseconds until
the table of a shared one has answered, with fifty requests at once.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from addon.parts.caps.gate import Gate
from addon.parts.caps.limits import Limits
from ledger.model.exchange import Billing, Exchange
from ledger.model.usage import Usage
from ledger.parts.budgets.book import Held, Waiting
from ledger.parts.budgets.budgets_file import CapFile
from ledger.parts.budgets.caps import Cap
from ledger.parts.budgets.shared import SharedCaps
from ledger.pricing.prices import PriceBook
from ledger.settings.names import NO_NAMES
from ledger.store import db
from ledger.store.processes import nodes
from tests.ledger.written import opened, reading

ROUNDS = 20_000
AT_ONCE = 50
LIMITS = Limits(input_bytes=4_000, output_tokens=500)


def gate_of(url: str, file: Path, *caps: Cap) -> Gate:
    """A process under these caps."""
    prices = PriceBook()
    prices.read_lists()
    gate = Gate(
        own=(),
        prices=prices,
        file=CapFile(),
        shared=lambda: SharedCaps(url, node="n", file=file),
    )
    gate.book.set_caps(caps, NO_NAMES)
    return gate


def request(number: int) -> Exchange:
    """One of ten sessions."""
    return opened(
        str(number),
        at=datetime.now(UTC),
        provider="openai",
        origin="https://api.openai.com:443",
        request_model="gpt-4o",
        session_id=f"s{number % 10}",
    )


def settle(gate: Gate, exchange: Exchange) -> None:
    """It cost some $0.003."""
    usage = Usage(input_tokens=900, output_tokens=100)
    gate.settled(exchange, replace(reading(exchange), usage=usage))


def own(gate: Gate) -> None:
    """Ask and settle, one after another."""
    asking, settling = [], []
    for number in range(ROUNDS):
        exchange = request(number)
        began = time.thread_time_ns()
        found = gate.ask(exchange, LIMITS, fields={}, billing=Billing.METERED)
        asked = time.thread_time_ns()
        assert isinstance(found, Held)
        asking.append((asked - began) / 1e3)
        began = time.thread_time_ns()
        settle(gate, exchange)
        settling.append((time.thread_time_ns() - began) / 1e3)
    show("own, ask", asking, "us")
    show("own, settle", settling, "us")


async def shared(gate: Gate, at_once: int) -> None:
    """So many ask at once, again and again."""
    spans: list[float] = []

    async def ask(number: int) -> Exchange:
        exchange, began = request(number), time.perf_counter()
        found = gate.ask(exchange, LIMITS, fields={}, billing=Billing.METERED)
        assert isinstance(found, Waiting)
        assert isinstance(await gate.wait(found), Held)
        spans.append((time.perf_counter() - began) * 1e3)
        return exchange

    for turn in range(2_000 // at_once):
        asked = (ask(turn * at_once + number) for number in range(at_once))
        for exchange in await asyncio.gather(*asked):  # no answer comes before all were sent
            settle(gate, exchange)
    show(f"shared, {at_once} at once", spans[at_once:], "ms")


def show(name: str, spans: Sequence[float], unit: str) -> None:
    """Medians and tails."""
    p99 = statistics.quantiles(spans, n=100)[98]
    print(f"{name}: p50 {statistics.median(spans):.2f} {unit}, p99 {p99:.2f} {unit}")


def main() -> None:
    """Print them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.db"
        url = f"sqlite:///{file}"
        db.ensure(url).dispose()
        claim = nodes.Claim(file, "n").take()

        async def play() -> None:
            own(gate_of(url, file, Cap(name="run", usd=100_000, period="run")))
            gate = gate_of(url, file, Cap(name="day", usd=100_000, period="day"))
            for at_once in (1, AT_ONCE):
                await shared(gate, at_once)
            gate.release()

        asyncio.run(play())
        claim.release()


if __name__ == "__main__":
    main()
