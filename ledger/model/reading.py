"""Pure. A reading: what the meter read from an exchange. Readings are append-only."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from ledger.model.columns import TEXT_CHARACTERS_MAX, Column
from ledger.model.usage import NO_USAGE, Usage


class UsageSource(StrEnum):
    """Where a reading's figures come from."""

    REPORTED = "reported"
    """The provider's final figures."""
    PARTIAL = "partial"
    """The figures that the provider had reported when the exchange ended early."""
    ESTIMATED = "estimated"
    """Computed from the bytes that passed, because the provider reported nothing."""
    NONE = "none"


class Billing(StrEnum):
    """How the provider bills an exchange, told from the wire or from the operator's names file."""

    METERED = "metered"
    """By tokens, at the prices of an API key."""
    PLAN = "plan"
    """By a flat price for a month: none of its tokens has a price of its own."""
    FREE = "free"
    """Not at all."""


COVERED = (Billing.PLAN, Billing.FREE)
"""Nothing of an exchange is billed by tokens: its list value is no cost."""


class Reading(Struct, frozen=True, kw_only=True):
    """What the meter read from an exchange; append-only, the highest revision counts."""

    exchange_id: Annotated[str, Column("The exchange that was read")]
    opened_at: Annotated[datetime, Column("The exchange's opened_at")]
    revision: Annotated[
        int,
        Column(
            "The highest is current; of equal ones, the earliest. 0: placeholder of a lost exchange"
        ),
    ] = 1
    meter_version: Annotated[str, Column("Version of the meter that made the reading")]
    usage_source: Annotated[UsageSource, Column("reported, partial, estimated or none")]
    usage: Usage = NO_USAGE
    usage_json: Annotated[
        str | None,
        Column(
            "The provider's usage object, verbatim; NULL: none. Billing fields beside it or in "
            "the request follow, as `beside:NAME`"
        ),
    ] = None
    estimated_output_tokens: Annotated[
        int | None, Column("Estimate of the output that passed before an early end")
    ] = None
    read_at: Annotated[datetime, Column("When the reading was made, UTC")]
    reason: Annotated[
        str | None, Column("Why there is a further revision", TEXT_CHARACTERS_MAX)
    ] = None
    billing: Annotated[
        Billing | None,
        Column("metered (billed by tokens), plan (covered by a flat price) or free; NULL: unknown"),
    ] = None
