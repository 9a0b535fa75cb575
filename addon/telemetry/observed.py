"""Pure. One exchange for telemetry: figures and bounded labels, without content."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from ledger.model.charge import Amounts, Charge, amounts_of
from ledger.model.exchange import Exchange, Outcome
from ledger.model.reading import Reading, UsageSource

HOLDER_LENGTH = 8
"""Characters of a hash that tell accounts apart on a dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One settled exchange, committed."""

    exchange: Exchange
    reading: Reading
    amounts: Amounts
    settled_at: datetime

    @property
    def is_estimated(self) -> bool:
        """Whether the figures are our estimate: no counter of tokens includes them."""
        return self.reading.usage_source is UsageSource.ESTIMATED

    @property
    def has_usage(self) -> bool:
        """Whether usage was reported or estimated."""
        return self.reading.usage_source is not UsageSource.NONE

    @property
    def is_without_usage(self) -> bool:
        """As in the ledger's views: neither reported nor estimated, and no error."""
        failed = self.exchange.outcome in (Outcome.ERROR_FRAME, Outcome.HTTP_ERROR)
        return not (self.has_usage or failed)

    @property
    def is_unpriced(self) -> bool:
        """Usage was reported and is billed by tokens, and some line of it has no price."""
        amounts = self.amounts
        return not (amounts.is_complete or self.is_estimated or amounts.is_covered)

    @property
    def billing(self) -> str:
        """metered, plan, free or unknown."""
        return self.reading.billing or "unknown"

    @property
    def model(self) -> str:
        """The model that answered, otherwise the requested one."""
        return self.exchange.model or "unknown"

    @property
    def holder(self) -> str:
        """Whose limits an answer states: the beginning of the account's hash, or of the key's."""
        return (self.exchange.account or self.exchange.key_fingerprint or "")[:HOLDER_LENGTH]

    @property
    def seconds(self) -> float:
        """From the request to the settling; 0 if the clock went back in between."""
        return max(0.0, (self.settled_at - self.exchange.opened_at).total_seconds())

    @property
    def seconds_to_first_token(self) -> float | None:
        """None: no token came."""
        if self.exchange.first_token_at is None:
            return None
        elapsed = self.exchange.first_token_at - self.exchange.opened_at
        return max(0.0, elapsed.total_seconds())

    @property
    def error_type(self) -> str | None:
        """OpenTelemetry's `error.type`: the provider's word, otherwise the HTTP status or the
        outcome. None: no error."""
        exchange = self.exchange
        if exchange.outcome is Outcome.COMPLETE:
            return None
        is_refused = exchange.outcome is Outcome.HTTP_ERROR and exchange.http_status is not None
        return exchange.error_type or str(exchange.http_status if is_refused else exchange.outcome)

    @property
    def server(self) -> tuple[str, int | None]:
        """Host and port of the upstream; None: it has no port that is one."""
        parts = urlsplit(self.exchange.origin)
        try:
            return parts.hostname or self.exchange.origin, parts.port
        except ValueError:
            return self.exchange.origin, None


def observed(exchange: Exchange, reading: Reading, charges: Sequence[Charge]) -> Observed:
    """A settled exchange, its reading and its charges, for telemetry."""
    assert exchange.settled_at is not None, exchange.id
    assert exchange.outcome is not None, exchange.id
    lines = ((line.amount_picousd, line.price_source) for line in charges)
    return Observed(
        exchange=exchange,
        reading=reading,
        amounts=amounts_of(reading.usage_source, reading.billing, lines),
        settled_at=exchange.settled_at,
    )
