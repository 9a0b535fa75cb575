"""Accounts of a flat plan whose true values are drawn: sessions at a time, devices that are not
recorded, changes, whole percents that are rounded one way or another and hold their own request or
do not."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from ledger.model.exchange import Exchange, Quota, QuotaKind, Reading, UsageSource
from ledger.model.usage import Usage
from ledger.parts.plans.percent_value import StatedPercent, Use
from tests.ledger.written import NOON, charge, reading, settled

HOUR = 3_600.0
WINDOW = 5 * HOUR
PRICES = {"uncached_input": 3_000_000, "cache_read": 300_000, "output": 15_000_000}
"""Pico-USD for a token."""
ROUNDED: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "round": round,
    "ceil": math.ceil,
}


class Call(NamedTuple):
    at: float
    ended_at: float
    session: int
    model: str
    tokens: tuple[int, int, int]
    """Uncached input, cached, output."""
    percent: int
    resets_at: float

    @property
    def usd(self) -> float:
        return sum(n * price for n, price in zip(self.tokens, PRICES.values(), strict=True)) / 1e12


@dataclass
class Account:
    """What is drawn, and the calls that are recorded."""

    seed: int
    models: int = 1
    days: int = 10
    is_changed: bool | None = None
    has_devices: bool = True
    calls: list[Call] = field(default_factory=list)
    unrecorded: float = 0.0
    """Percent that unrecorded devices used and a later figure of the window showed."""

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        before = math.exp(chance.uniform(math.log(0.05), math.log(3)))
        is_changed = chance.random() < 0.4 if self.is_changed is None else self.is_changed
        factor = chance.choice([0.5, 0.6, 0.75, 1.4, 1.8]) if is_changed else 1.0
        self.changed_at = self.days * 24 * HOUR * chance.uniform(0.35, 0.65)
        self.is_changed = is_changed
        self.before, self.value = before, before * factor
        """USD for a percent, of the first model."""
        self.weights = {
            f"model-{n}": math.exp(chance.uniform(-0.5, 0.5)) if n else 1.0
            for n in range(self.models)
        }
        """How many times that a percent buys of each model."""
        self.rounded = ROUNDED[chance.choice([*ROUNDED])]
        self.order = chance.choice(["own", "before", "ended"])
        self.size = math.exp(chance.uniform(math.log(0.1), math.log(2.5)))
        """Percent of a call, about."""
        self._ask(chance)

    def _ask(self, chance: random.Random) -> None:
        begun, used, hidden = -math.inf, 0.0, 0.0
        flying: list[tuple[float, float]] = []
        for at, session, seconds, share, tokens in sorted(self._asked(chance)):
            if at >= begun + WINDOW:
                begun, used, hidden, flying = at, 0.0, 0.0, []
            if session is None:
                used += share
                hidden += share
                continue
            if used >= 97:
                continue
            model = chance.choice([*self.weights])
            value = self.value if at >= self.changed_at else self.before
            call = Call(at, at + seconds, session, model, tokens, 0, begun + WINDOW)
            cost = call.usd / (value * self.weights[model])
            shown = used
            if self.order == "own":
                used = shown = used + cost
            elif self.order == "before":
                used += cost
            else:
                shown = used = used + sum(c for end, c in flying if end <= at)
                flying = [(end, c) for end, c in flying if end > at] + [(at + seconds, cost)]
            self.calls.append(call._replace(percent=self.rounded(shown)))
            self.unrecorded += hidden
            hidden = 0.0

    def _asked(
        self, chance: random.Random
    ) -> Iterator[tuple[float, int | None, float, float, tuple[int, int, int]]]:
        count = 0
        for day in range(self.days):
            for _ in range(chance.choice([0, 1, 2, 3])):
                count += 1
                at = (24 * day + chance.uniform(8, 22)) * HOUR
                for _ in range(int(chance.uniform(8, 25) * min(4, max(0.5, 1 / self.size)))):
                    usd = self.before * self.size * math.exp(chance.gauss(-0.32, 0.8))
                    parts = [chance.random() for _ in range(3)]
                    tokens = [
                        int(usd * 1e12 * part / sum(parts) / price)
                        for part, price in zip(parts, PRICES.values(), strict=True)
                    ]
                    seconds = chance.uniform(1, 30)
                    yield at, count, seconds, 0.0, (tokens[0], tokens[1], tokens[2])
                    at += seconds + chance.expovariate(1 / 60)
            for _ in range(chance.choice([0, 0, 1, 2]) if self.has_devices else 0):
                at = (24 * day + chance.uniform(8, 22)) * HOUR
                share = math.exp(chance.uniform(math.log(0.2), math.log(2)))
                for _ in range(chance.randint(1, 15)):
                    yield at, None, 0.0, share, (0, 0, 0)
                    at += chance.expovariate(1 / 60)

    def value_over_all(self) -> float:
        """At the mix since the last change that a call came after."""
        changed_at = self.changed_at if self.is_changed else math.inf
        is_after = self.calls[-1].at >= changed_at
        calls = [each for each in self.calls if (each.at >= changed_at) == is_after]
        value = self.value if is_after else self.before
        return sum(each.usd for each in calls) / sum(
            each.usd / (value * self.weights[each.model]) for each in calls
        )

    def figures(self) -> list[StatedPercent]:
        found: list[StatedPercent] = []
        for each in self.calls:
            figure = StatedPercent(each.at, float(each.percent), each.resets_at - WINDOW)
            if not found or found[-1][1:] != figure[1:]:
                found.append(figure)
        return found

    def uses(self) -> list[Use]:
        return [
            Use(arrived_at=each.at, model=each.model, usd=each.usd, is_answered=True)
            for each in self.calls
        ]

    def entries(
        self, account: str, provider: str = "example"
    ) -> Iterator[tuple[Exchange, Reading]]:
        """As a proxy records them; every answer states the window."""
        for number, each in enumerate(self.calls):
            at = NOON + timedelta(seconds=each.at)
            stated = Quota(
                window="5h",
                window_name="5h",
                window_minutes=300,
                kind=QuotaKind.PLAN,
                used_ppm=each.percent * 10_000,
                resets_at=NOON + timedelta(seconds=each.resets_at),
            )
            exchange = settled(
                f"{account}-{number:05}",
                at=at,
                seconds=each.ended_at - each.at,
                provider=provider,
                session_id=f"{account}-s{each.session}",
                account=account,
                key_fingerprint=f"k-{account}",
                first_byte_at=at,
                http_status=200,
                response_model=each.model,
                quotas=(stated,),
            )
            uncached, cached, output = each.tokens
            usage = Usage(
                input_tokens=uncached + cached, cache_read_tokens=cached, output_tokens=output
            )
            yield exchange, reading(exchange, usage=usage, usage_source=UsageSource.REPORTED)


def at_prices(_: Exchange, read: Reading) -> tuple[object, ...]:
    """The lines of a reading at PRICES."""
    usage = read.usage
    cached = usage.cache_read_tokens or 0
    counts: Sequence[int] = ((usage.input_tokens or 0) - cached, cached, usage.output_tokens or 0)
    return tuple(
        charge(line, n, price, priced_at=read.read_at)
        for n, (line, price) in zip(counts, PRICES.items(), strict=True)
    )
