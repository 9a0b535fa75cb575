"""Edge. Looks up prices per unit at a moment, in all sources.

Sources in order, line by line: the operator's override file, genai-prices, and LiteLLM's file if
genai-prices lacks the model. The result for one (origin, provider, models, tier) is cached with the
time span in which it holds, so each further such exchange costs one dict lookup. Files are read
when the book is created, never later.
"""

import threading
from dataclasses import replace
from datetime import datetime

from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.pricing import overrides as override_file
from ledger.pricing import published
from ledger.pricing.charges import charge
from ledger.pricing.overrides import NO_OVERRIDES, Overrides
from ledger.pricing.price_lines import NO_TIME, Rate, Sheet, covered
from ledger.pricing.price_lists import Candidate, PriceQuestion, candidates

SHEETS_MAX = 4096
"""Names of models come from clients and upstreams; beyond this many the cache is cleared, at about
4 MB of sheets."""
PRELOAD_AFTER_SECONDS = 1.0
"""Reading takes 0.3 s of CPU. `tokentee run -- true`
ends before it begins, and no model answers sooner."""

type _Key = tuple[str, str, str | None, str | None, str | None]


class PriceBook:
    """Returns the price of one unit of each line. Used by one thread."""

    def __init__(self, overrides: Overrides = NO_OVERRIDES) -> None:
        self._overrides = overrides
        self._sheets: dict[_Key, Sheet] = {}

    @classmethod
    def load(cls, overrides_path: str | None) -> "PriceBook":
        """A book with the operator's own prices; LedgerError if that file has a fault.

        The published prices are read a little later, so that neither the start of a proxy nor,
        as a rule, the first answer waits for them.
        """
        book = cls(override_file.load(overrides_path) if overrides_path else NO_OVERRIDES)
        preloading = threading.Timer(PRELOAD_AFTER_SECONDS, published.preload)
        preloading.name = "tokentee-prices"
        preloading.daemon = True
        preloading.start()
        return book

    def price(self, exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
        """The charges of a reading, for `ledger.recording.open_ledger(price=...)`."""
        return charge(exchange, reading, self)

    def sheet(self, exchange: Exchange, *, model: str | None = None) -> Sheet:
        """The prices in force when the exchange was opened; `model`: of another model than the
        one that answered (an iteration's)."""
        key = (
            exchange.origin,
            exchange.provider,
            model or exchange.response_model,
            exchange.request_model,
            exchange.service_tier,
        )
        sheet = self._sheets.get(key)
        if sheet is None or not sheet.since <= exchange.opened_at < sheet.until:
            if len(self._sheets) >= SHEETS_MAX:
                self._sheets.clear()
            sheet = self._sheets[key] = self.look_up(
                PriceQuestion(
                    origin=exchange.origin,
                    provider=exchange.provider,
                    path=exchange.path,
                    response_model=model or exchange.response_model or None,
                    request_model=exchange.request_model or None,
                ),
                tier=exchange.service_tier,
                at=exchange.opened_at,
            )
        return sheet

    def look_up(self, question: PriceQuestion, *, tier: str | None, at: datetime) -> Sheet:
        """The prices for a question, without the cache."""
        entries = tuple(
            entry for entry in self._overrides.entries if entry.applies_to(question, tier)
        )
        own, rest, since, until = override_file.in_force(entries, at)
        if rest is not None:
            return Sheet(own, "", since, until, rest)
        listed = self._listed(question, tier, at)
        return Sheet(
            covered(listed.rates | own),
            listed.absent,
            max(since, listed.since),
            min(until, listed.until),
        )

    def _listed(self, question: PriceQuestion, tier: str | None, at: datetime) -> published.Period:
        if question.model is None:
            return _nothing("the exchange names no model")
        asked = list(candidates(question, self._overrides.gateways))
        found = self._in_genai_prices(question, asked, tier, at)
        if found is not None and found.rates:
            return found
        found = found or _nothing(_unknown(question, asked))
        if rates := self._in_litellm(asked, tier):
            absent = f"{question.model!r} is listed without this line"
            return replace(found, rates=rates, absent=absent)
        return found

    def _in_genai_prices(
        self, question: PriceQuestion, asked: list[Candidate], tier: str | None, at: datetime
    ) -> published.Period | None:
        for candidate in asked:
            model = published.find(candidate.list_id, candidate.model)
            if model is not None:
                own = candidate.own and not model.is_borrowed
                source = model.source + (
                    f" for {question.host}" if question.host and not own else ""
                )
                return published.prices(model, tier=tier, at=at, source=source)
        return None

    def _in_litellm(self, asked: list[Candidate], tier: str | None) -> dict[str, Rate] | None:
        if self._overrides.litellm is None:
            return None
        for candidate in asked:
            rates = self._overrides.litellm.rates(candidate.list_id, candidate.model, tier)
            if rates is not None:
                return rates
        return None


def _nothing(reason: str) -> published.Period:
    return published.Period({}, reason, *NO_TIME)


def _unknown(question: PriceQuestion, asked: list[Candidate]) -> str:
    lists = sorted({candidate.list_id for candidate in asked if candidate.own})
    if lists:
        return f"no price for {question.model!r} in the list of {', '.join(lists)}"
    at = f" at {question.host}" if question.host else ""
    return f"no price for {question.model!r}{at}; declare it in a price file"
