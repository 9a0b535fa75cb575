"""Wiring. `--since`, `--until` and `--only` as a scope."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.store.scope import Scope


def scope_of(
    since: str | None,
    until: str | None,
    only: list[str] | None,
    names: str | None = None,
    timezone: str | None = None,
) -> "Scope":
    """The scope that the options select; LedgerError for an invalid word."""
    from ledger.model.errors import WrongCallError
    from ledger.settings import names_file
    from ledger.store.scope import Scope
    from ledger.text import period

    zone = period.zone_of(timezone) if timezone and timezone != "UTC" else None
    now = datetime.now(zone or UTC)
    pairs = []
    for condition in only or []:
        word, separator, value = condition.partition("=")
        if not separator:
            raise WrongCallError(f"not a condition: {condition!r}; write --only model=gpt-5")
        pairs.append((word.strip(), value.strip()))
    return Scope(
        since=period.moment(since, now) if since else None,
        until=period.moment(until, now) if until else None,
        only=tuple(pairs),
        names=names_file.load(names),
        zone=zone,
    )
