"""Edge. Looks up prices per unit at a moment, in all sources.

Sources in order, line by line: the operator's override file, genai-prices, and LiteLLM's file if
genai-prices lacks the model. Billing rules (`rules.py`) apply to both lists. The result for one
(origin, provider, models, tier, billing fields) is cached with the time span in which it holds, so
each further such exchange costs one dict lookup. Files are read when the book is created, never
later.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

from ledger.model.aliases import is_another
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange, Reading
from ledger.pricing import overrides as override_file
from ledger.pricing import published
from ledger.pricing import rules as billing
from ledger.pricing.charges import charge
from ledger.pricing.overrides import NO_OVERRIDES, Overrides
from ledger.pricing.price_lines import NO_TIME, Sheet, covered
from ledger.pricing.price_lists import Candidate, PriceQuestion, candidates
from ledger.pricing.rules import Case
from ledger.pricing.snapshots import PriceList, Snapshots

SHEETS_MAX = 4096
"""Names of models come from clients and upstreams; beyond this many the cache is cleared, at about
4 MB of sheets."""
NO_FIELDS: Mapping[str, str] = MappingProxyType({})
PRELOAD_AFTER_SECONDS = 1.0
"""Reading takes 0.3 s of CPU. `tokentee run -- true`
ends before it begins, and no model answers sooner."""

type _Key = tuple[
    str, str, str, str | None, str | None, str | None, frozenset[tuple[str, str]], bool
]


class PriceBook:
    """Returns the price of one unit of each line. Used by one thread."""

    def __init__(
        self, overrides: Overrides = NO_OVERRIDES, snapshots: Snapshots | None = None
    ) -> None:
        """`snapshots`: lists that were read later than the installed one."""
        self._overrides = overrides
        self._snapshots = snapshots
        self._newest = snapshots.newest() if snapshots else None
        self._rules = billing.published() + overrides.rules
        self._sheets: dict[_Key, Sheet] = {}

    @classmethod
    def load(cls, overrides_path: str | None) -> "PriceBook":
        """A book with the operator's own prices (of this file, else of `TOKENTEE_PRICES`, else of
        `prices.toml` in the settings folder) and the lists that were read later; LedgerError if one
        of these files has a fault.

        The published prices are read a little later, so that neither the start of a proxy nor,
        as a rule, the first answer waits for them.
        """
        book = cls(override_file.load(overrides_path), Snapshots())
        preloading = threading.Timer(PRELOAD_AFTER_SECONDS, book.read_lists)
        preloading.name = "tokentee-prices"
        preloading.daemon = True
        preloading.start()
        return book

    def read_lists(self) -> None:
        """Read the lists in force now: later, asking for a price takes no file."""
        published.installed()
        assert self._newest is None or self._newest.lists or self._newest.second

    def price(self, exchange: Exchange, reading: Reading) -> tuple[Charge, ...]:
        """The charges of a reading, for `ledger.recording.open_ledger(price=...)`."""
        return charge(exchange, reading, self)

    def fields(self, reading: Reading) -> Mapping[str, str]:
        """The billing fields of a reading's usage object."""
        return self._rules.fields_of(reading.usage_json)

    def sheet(
        self,
        exchange: Exchange,
        fields: Mapping[str, str],
        *,
        model: str | None = None,
        is_covered: bool = False,
    ) -> Sheet:
        """The prices in force when the exchange was opened; `model`: of another model than the
        one that answered (an iteration's); `is_covered`: nothing of it is billed by tokens."""
        key = (
            exchange.origin,
            exchange.provider,
            exchange.path.partition("/")[2].partition("/")[0],
            model or exchange.response_model,
            exchange.request_model,
            exchange.service_tier,
            frozenset(fields.items()),
            is_covered,
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
                    is_covered=is_covered,
                ),
                tier=exchange.service_tier,
                at=exchange.opened_at,
                fields=fields,
            )
        return sheet

    def look_up(
        self,
        question: PriceQuestion,
        *,
        tier: str | None,
        at: datetime,
        fields: Mapping[str, str] = NO_FIELDS,
    ) -> Sheet:
        """The prices for a question, without the cache."""
        entries = tuple(
            entry for entry in self._overrides.entries if entry.applies_to(question, tier)
        )
        own, rest, since, until = override_file.in_force(entries, at)
        if rest is not None:
            return Sheet(own, "", since, until, rest)
        asked = list(candidates(question, self._overrides.gateways))
        listed = self._listed(question, asked, tier, at)
        # The rules of the list with the model apply, and those of the host's own.
        own_lists = [each.list_id for each in asked if each.own or not listed.list_id]
        asked_for, answered = question.request_model, question.response_model
        if asked_for and answered and is_another(question.provider, asked_for, answered):
            asked_for = None  # the rules of a model are not those of another that stood in for it
        names = (listed.model_id, answered, asked_for, *(each.model for each in asked))
        effect = self._rules.effect(
            Case(
                host=question.host,
                lists=tuple(dict.fromkeys((listed.list_id, *own_lists, question.provider))),
                models=tuple(dict.fromkeys(name.lower() for name in names if name)),
                tier=listed.missing_tier,
                listed_tier=None if listed.missing_tier else published.tier_name(tier),
                fields=fields,
            ),
            at.astimezone(UTC),
            listed.rates,
        )
        line = "uncached_input"
        if listed.partial and effect.rates.get(line) is listed.rates.get(line):
            effect.partial.append(listed.partial)  # no rule has the seller's own price
        return Sheet(
            covered(effect.rates | own),
            listed.absent,
            max(since, listed.since, effect.since),
            min(until, listed.until, effect.until),
            bill="" if own else effect.bill,
            partial=() if own else tuple(effect.partial),
        )

    def _listed(
        self, question: PriceQuestion, asked: list[Candidate], tier: str | None, at: datetime
    ) -> published.PricePeriod:
        """The prices of the list in force at that moment; where it has none, of the newest."""
        if question.model is None:
            return _nothing("the exchange names no model", tier)
        if self._snapshots is None or not self._snapshots.entries:
            return self._in_lists(question, asked, tier, at, None)
        snapshot, since, until = self._snapshots.at(at)
        found = self._in_lists(question, asked, tier, at, snapshot)
        newest = self._newest
        if not found.rates and newest is not None and newest is not snapshot:
            later = self._in_lists(question, asked, tier, at, newest)
            found = later if later.rates else found
        return replace(found, since=max(found.since, since), until=min(found.until, until))

    def _in_lists(
        self,
        question: PriceQuestion,
        asked: list[Candidate],
        tier: str | None,
        at: datetime,
        snapshot: PriceList | None,
    ) -> published.PricePeriod:
        lists = (snapshot.lists if snapshot else None) or published.installed()
        found = None
        for each in asked:
            if (model := lists.find(each.list_id, each.model)) is not None:
                own = each.own and not model.is_borrowed
                at_host = f" for {question.host}" if question.host and not own else ""
                source = f"{model.source}{at_host}"
                found = published.prices(model, tier=tier, at=at, source=source)
                break
        if found is not None and found.rates and found.missing_tier is None:
            return found
        if found is None:
            own_lists = sorted({each.list_id for each in asked if each.own})
            where = f" at {question.host}" if question.host else ""
            rest = f"{where}; declare it in a price file"
            if own_lists:
                rest = f" in the list of {', '.join(own_lists)}"
            found = _nothing(f"no price for {question.model!r}{rest}", tier)
        for second in (snapshot.second if snapshot else None, self._overrides.litellm):
            every = (second.rates(each.list_id, each.model, tier) for each in asked if second)
            listed = next(filter(None, every), None)
            if listed is not None and (not found.rates or listed[1] is None):
                absent = f"{question.model!r} is listed without this line"
                return replace(found, rates=listed[0], absent=absent, missing_tier=listed[1])
        return found


def _nothing(reason: str, tier: str | None) -> published.PricePeriod:
    return published.PricePeriod({}, reason, *NO_TIME, missing_tier=published.tier_name(tier))
