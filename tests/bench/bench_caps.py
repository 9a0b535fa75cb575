"""Microseconds of CPU that a request pays for its caps.

    python -m tests.bench.bench_caps

One process at rest, with three caps of which one is shared: asking, and counting what it cost.
"""

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from addon.caps.limits import Limits
from addon.proxy.caps import CapFile, Gate
from ledger.caps.book import Held
from ledger.caps.caps import Cap
from ledger.caps.leases import NO_CAP_PART, grant
from ledger.model.exchange import Billing
from ledger.model.usage import Usage
from ledger.pricing.prices import PriceBook
from ledger.settings.names import NO_NAMES
from tests.ledger.written import opened, reading

ROUNDS = 20_000


def main() -> None:
    """Print the medians."""
    prices = PriceBook()
    prices.read_lists()
    caps = [
        Cap(name="day", usd=100_000, period="day", timezone="Europe/Berlin"),
        Cap(name="session", usd=100_000, period="session"),
        Cap(name="run", tokens=10**12, period="run"),
    ]
    file = CapFile("sqlite://", node="n", written=Path("unused"))
    gate = Gate(own=(), prices=prices, file=file, is_written=lambda: True)
    gate.book.set_caps(caps, NO_NAMES)
    gate.book.complete(caps, datetime.now(UTC))
    limits = Limits(input_bytes=4_000, output_tokens=500)
    asking, settling = [], []
    for number in range(ROUNDS):
        now = datetime.now(UTC)
        exchange = opened(
            str(number), at=now, provider="openai", origin="https://api.openai.com:443",
            request_model="gpt-4o", session_id=f"s{number % 10}",
        )  # fmt: skip
        done = replace(reading(exchange), usage=Usage(input_tokens=900, output_tokens=100))
        began = time.thread_time_ns()
        found = gate.ask(exchange, limits, fields={}, billing=Billing.METERED)
        asked = time.thread_time_ns()
        if not isinstance(found, Held):  # the first one of a session: the ledger would answer
            for ask in gate.book.asks(now):
                more = grant(
                    ask.account.limits, ask.own, NO_CAP_PART, ask.wants,
                    processes=1, is_contended=False,
                )  # fmt: skip
                gate.book.granted(ask, more, NO_CAP_PART)
            gate._renewed_at = time.monotonic() + 3_600
            gate._free()
            continue
        asking.append(asked - began)
        began = time.thread_time_ns()
        gate.settled(exchange, done)
        settling.append(time.thread_time_ns() - began)
    for name, spans in (("ask", asking), ("settle", settling)):
        p99 = statistics.quantiles(spans, n=100)[98]
        print(f"{name}: p50 {statistics.median(spans) / 1e3:.1f} us, p99 {p99 / 1e3:.1f} us")


if __name__ == "__main__":
    main()
