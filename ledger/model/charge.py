"""Pure. A charge: one priced line of a reading. Charges are append-only."""

from datetime import datetime
from typing import Annotated

from msgspec import Struct

from ledger.model.columns import TEXT_CHARACTERS_MAX, Column


class Charge(Struct, frozen=True, kw_only=True):
    """One priced line of a reading: quantity x unit price = amount, exactly."""

    line: Annotated[
        str,
        Column(
            "uncached_input, cache_read, cache_write_5m, output, …; a further iteration's kind "
            "stands before a dot: compaction.output"
        ),
    ]
    model: Annotated[str | None, Column("The model priced, where it is not the answer's own")] = (
        None
    )
    quantity: Annotated[int, Column("Number of units")]
    unit_picousd: Annotated[
        int | None, Column("Price of one unit in pico-USD; NULL: no price is known")
    ]
    amount_picousd: Annotated[
        int | None, Column("quantity x unit_picousd, exactly; NULL: no price is known")
    ]
    price_source: Annotated[str, Column("Library and version, override file digest, or provider")]
    priced_at: Annotated[datetime, Column("When it was priced, UTC")]
    supersedes: Annotated[str | None, Column("The id of the charge that this one replaces")] = None
    reason: Annotated[
        str | None, Column("Why there is no price, or why it was priced again", TEXT_CHARACTERS_MAX)
    ] = None
