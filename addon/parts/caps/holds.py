"""Edge (it reads prices). What a request can cost at most by the prices that its key was answered
with, and what it did cost."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from addon.parts.caps.bound import Dearest, dearest_of, hold_of, tokens_of
from addon.parts.caps.limits import Limits, limits_of_model
from addon.parts.caps.turns import Turns
from ledger.model.charge import cost_of
from ledger.model.exchange import COVERED, Billing, Exchange, Outcome, Reading, UsageSource
from ledger.model.usage import SERVICE_TIER, sum_of
from ledger.parts.budgets.caps import COST_MAX, WITHOUT_FIGURE, Amounts
from ledger.pricing.charges import BEYOND
from ledger.pricing.prices import PriceBook

ANSWERED_MAX = 10_000
"""Keys, upstreams and models of which it is remembered how they answered."""
ANSWERS_MAX = 16
"""Ways of each; further ones are dearer or cheaper by a tier that was seen before, as a rule."""

type _Answer = tuple[str | None, str | None, frozenset[tuple[str, str]]]
"""Model, tier and billing fields of an answer."""


class _Priced(NamedTuple):
    """The prices that can apply to a kind of request, and when they hold."""

    prices: tuple[Dearest, ...]
    since: datetime
    until: datetime


class Holds:
    """The holds of one recording."""

    def __init__(self, prices: PriceBook) -> None:
        self._prices = prices
        self._answers: dict[tuple[str, str | None, str | None], dict[_Answer, None]] = {}
        self._turns = Turns()
        self._priced: dict[tuple[object, ...], _Priced] = {}
        """To find them takes half as long as all of asking."""
        self._billings: dict[str | None, Billing | None] = {}
        """Key -> how its last answer was billed: a plan that is used up bills by tokens."""

    def hold(
        self,
        exchange: Exchange,
        limits: Limits,
        fields: Mapping[str, str],
        billing: Billing | None,
    ) -> tuple[Amounts, str]:
        """The amounts to hold; None where there is no bound, and why. `fields`: the billing fields
        that the request states."""
        last = self._billings.get(exchange.key_fingerprint)
        is_covered = billing in COVERED and last is not Billing.METERED
        kind = (bool(limits.pictures) or not limits.is_whole, limits.is_kept_long)
        asked = _asked_as(exchange)
        key = (*asked, exchange.provider, exchange.path, *kind, is_covered, *fields.items())
        priced = self._priced.get(key)
        if priced is None or not priced.since <= exchange.opened_at < priced.until:
            if len(self._priced) >= ANSWERED_MAX:
                self._priced.clear()
            stated = frozenset(each for each in fields.items() if each[0] != SERVICE_TIER)
            # A speed is billed as a tier of its own, whatever the tier.
            tiers = (None, fields.get(SERVICE_TIER), fields.get("speed"))
            ways: dict[_Answer, None] = {(None, tier, stated): None for tier in tiers}
            ways |= self._answers.get(asked, {})
            sheets = [
                self._prices.sheet(
                    replace(exchange, response_model=model, service_tier=tier),
                    dict(answered),
                    is_covered=is_covered,
                )
                for model, tier, answered in ways
            ]
            dearest = (dearest_of(each, has_media=kind[0], is_kept_long=kind[1]) for each in sheets)
            priced = self._priced[key] = _Priced(
                tuple(dict.fromkeys(dearest)),
                max(each.since for each in sheets),
                min(each.until for each in sheets),
            )
        tokens = tokens_of(
            limits,
            limits_of_model(exchange.request_model or ""),
            provider=exchange.provider,
            is_embedding=exchange.operation == "embeddings",
            by_turn=self._turns.input_of(exchange, limits),
        )
        return hold_of(limits, tokens, priced.prices, is_covered=is_covered)

    def cost(self, exchange: Exchange, reading: Reading, limits: object = None) -> Amounts:
        """What a request did cost; None: not known, and its hold counts. `limits`: what it said, if
        that is known."""
        if reading.usage_source is not UsageSource.REPORTED:
            is_error = exchange.outcome in (Outcome.HTTP_ERROR, Outcome.REFUSED)
            has_no_figure = is_error or exchange.http_status in WITHOUT_FIGURE
            return Amounts(0, 0, 0, 1) if has_no_figure else Amounts()
        # What the provider has answered with, and how it was billed: the next hold covers that.
        if len(self._answers) >= ANSWERED_MAX:
            self._answers.clear()
            self._billings.clear()
        self._billings[exchange.key_fingerprint] = reading.billing
        ways = self._answers.setdefault(_asked_as(exchange), {})
        fields = frozenset(self._prices.fields(reading).items())
        way = (exchange.response_model, exchange.service_tier, fields)
        if way not in ways:
            ways[way] = None
            self._priced.clear()
            if len(ways) > ANSWERS_MAX:
                del ways[next(iter(ways))]
        usage = reading.usage
        self._turns.add(exchange, usage, limits.turn if isinstance(limits, Limits) else None)
        lines = self._prices.price(exchange, reading)
        amounts = cost_of(reading, lines)
        usd = 0 if amounts.is_covered else amounts.cost_picousd
        further = [
            tokens
            for each in usage.further
            for tokens in (each.usage.input_tokens, each.usage.output_tokens)
        ]
        tokens = sum_of(usage.input_tokens, usage.output_tokens, *further)
        if any(BEYOND in (line.reason or "") for line in lines):
            return Amounts(0 if amounts.is_covered else COST_MAX, COST_MAX, tokens, 1)
        if not amounts.is_complete:
            return Amounts(None, None, tokens, 1)
        return Amounts(usd, amounts.list_value_picousd, tokens, 1)


def _asked_as(exchange: Exchange) -> tuple[str, str | None, str | None]:
    return exchange.origin, exchange.key_fingerprint, exchange.request_model
