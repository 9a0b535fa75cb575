"""Pure. One exchange for telemetry: bounded labels and figures, without content."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from ledger.model.charge import Charge, amounts_of
from ledger.model.exchange import Exchange, Outcome
from ledger.model.quota import Quota
from ledger.model.reading import Reading, UsageSource

HOLDER_LENGTH = 8
"""Characters of a hash that tell accounts apart on a dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One settled exchange, committed."""

    provider: str
    operation: str
    request_model: str | None
    response_model: str | None
    response_id: str | None
    outcome: str
    finish_reason: str | None
    error_type: str | None
    """OpenTelemetry's `error.type`: the provider's word, otherwise the HTTP status or the outcome.
    None: no error."""
    server_address: str
    server_port: int | None
    session_id: str | None
    opened_at: datetime
    first_token_at: datetime | None
    settled_at: datetime
    input_tokens: int | None
    """All input, cached included, as OpenTelemetry counts."""
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    """All output, reasoning included."""
    reasoning_tokens: int | None
    is_estimated: bool
    """The figures are our estimate: no counter of tokens includes them."""
    has_usage: bool
    is_degraded: bool
    billing: str
    """metered, plan, free or unknown."""
    cost_picousd: int | None
    """Of reported usage that is billed by tokens; None: no line is priced, or nothing is billed."""
    list_value_picousd: int | None
    """What the reported tokens cost at list prices, whoever pays them."""
    is_unpriced: bool
    """Usage was reported and is billed by tokens, and some line of it has no price."""

    quotas: tuple[Quota, ...] = ()
    """What the answer stated of limits."""
    holder: str = ""
    """Whose these are: the beginning of the account's hash, or else of the key's."""

    @property
    def is_without_usage(self) -> bool:
        """As in the ledger's views: neither reported nor estimated, and no error."""
        return not self.has_usage and self.outcome not in (Outcome.ERROR_FRAME, Outcome.HTTP_ERROR)

    @property
    def model(self) -> str:
        """The model that answered, otherwise the requested one."""
        return self.response_model or self.request_model or "unknown"

    @property
    def seconds(self) -> float:
        """From the request to the settling; 0 if the clock went back in between."""
        return max(0.0, (self.settled_at - self.opened_at).total_seconds())

    @property
    def seconds_to_first_token(self) -> float | None:
        """None: no token came."""
        if self.first_token_at is None:
            return None
        return max(0.0, (self.first_token_at - self.opened_at).total_seconds())


def observed(exchange: Exchange, reading: Reading, charges: Sequence[Charge]) -> Observed:
    """The values that telemetry keeps of a settled exchange, its reading and its charges."""
    assert exchange.settled_at is not None, exchange.id
    assert exchange.outcome is not None, exchange.id
    usage = reading.usage
    amounts = amounts_of(
        reading.usage_source,
        reading.billing,
        ((line.amount_picousd, line.price_source) for line in charges),
    )
    is_estimated = reading.usage_source is UsageSource.ESTIMATED
    has_usage = reading.usage_source is not UsageSource.NONE
    address, port = _server(exchange.origin)
    return Observed(
        provider=exchange.provider,
        operation=exchange.operation,
        request_model=exchange.request_model,
        response_model=exchange.response_model,
        response_id=exchange.response_id,
        outcome=str(exchange.outcome),
        finish_reason=exchange.finish_reason,
        error_type=_error_type(exchange),
        server_address=address,
        server_port=port,
        session_id=exchange.session_id,
        opened_at=exchange.opened_at,
        first_token_at=exchange.first_token_at,
        settled_at=exchange.settled_at,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        is_estimated=is_estimated,
        has_usage=has_usage,
        is_degraded=exchange.degraded is not None,
        billing=reading.billing or "unknown",
        cost_picousd=amounts.cost_picousd,
        list_value_picousd=amounts.list_value_picousd,
        quotas=exchange.quotas,
        holder=(exchange.account or exchange.key_fingerprint or "")[:HOLDER_LENGTH],
        is_unpriced=not (amounts.is_complete or is_estimated or amounts.is_covered),
    )


def _error_type(exchange: Exchange) -> str | None:
    if exchange.outcome is Outcome.COMPLETE:
        return None
    if exchange.error_type is not None:
        return exchange.error_type
    if exchange.outcome is Outcome.HTTP_ERROR and exchange.http_status is not None:
        return str(exchange.http_status)
    return str(exchange.outcome)


def _server(origin: str) -> tuple[str, int | None]:
    parts = urlsplit(origin)
    try:
        return parts.hostname or origin, parts.port
    except ValueError:
        return origin, None
