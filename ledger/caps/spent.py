"""Database. What a ledger has spent under a cap.

A request counts what it cost. One whose cost never became known counts what was held for it, as
long as its period lasts; so does one that was lost. Replayed and imported rows count for no cap.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ledger.caps.caps import Amounts, Cap, session_of_key
from ledger.model.exchange import COVERED
from ledger.settings.names import Names, pattern, texts
from ledger.store.adding_up import rows_of
from ledger.store.scope import Scope, conditions, requests
from ledger.store.tables import exchanges
from ledger.text.origins import host_of

_KNOWN = "usage_source = 'reported' OR outcome = 'http_error'"
_COVERED = ", ".join(f"'{each.value}'" for each in COVERED)
_TERMS = {
    "usd": f"""CASE WHEN outcome = 'refused' THEN 0
      WHEN usage_source = 'reported' AND billing IN ({_COVERED}) THEN 0
      WHEN usage_source = 'reported' AND cost_state IN ('priced', 'reported') THEN cost_picousd
      WHEN outcome = 'http_error' THEN COALESCE(cost_picousd, 0)
      ELSE COALESCE(hold_picousd, cost_picousd, 0) END""",
    "list_value_usd": """CASE WHEN outcome = 'refused' THEN 0
      WHEN outcome = 'http_error' THEN COALESCE(list_value_picousd, 0)
      WHEN usage_source = 'reported' THEN COALESCE(list_value_picousd, hold_list_value_picousd, 0)
      ELSE COALESCE(hold_list_value_picousd, list_value_picousd, 0) END""",
    "tokens": f"""CASE WHEN outcome = 'refused' THEN 0
      WHEN {_KNOWN} THEN COALESCE(input_tokens, 0) + COALESCE(output_tokens, 0)
        + COALESCE(extra_input_tokens, 0) + COALESCE(extra_output_tokens, 0)
      ELSE COALESCE(hold_tokens, 0) END""",
    "requests": "CASE WHEN outcome = 'refused' THEN 0 ELSE 1 END",
}
"""What one row of the view `requests` counts. As `addon.proxy.caps`, which counts as it comes."""
_HELD = {
    "usd": "COALESCE(hold_picousd, 0)",
    "list_value_usd": "COALESCE(hold_list_value_picousd, 0)",
    "tokens": "COALESCE(hold_tokens, 0)",
    "requests": "1",
}
"""What an open row counts."""
SESSION_DAYS = 31
"""Sessions that were idle for longer begin anew."""


class Prior(NamedTuple):
    """What was spent in an account."""

    lease: str | None
    """The process whose lease it is part of, if that is asked for."""
    session: str | None
    """Of caps for sessions."""
    at: datetime
    amounts: Amounts


def of_cap(engine: Engine, cap: Cap, names: Names, now: datetime) -> list[Prior]:
    """What a cap has spent in its period: by session, or by minute if the period is rolling."""
    with engine.connect() as connection:
        return list(_sums(connection, requests, cap, names, now))


def beside(
    connection: Connection,
    cap: Cap,
    names: Names,
    now: datetime,
    *,
    leases: Mapping[str, datetime],
    apart: Mapping[str, datetime],
) -> Iterator[Prior]:
    """The same, and what is held for open requests. Without what the processes of `leases` settled
    since then and have open; that of `apart` by process."""
    for table in (exchanges, requests):

        def is_of(node: str, began_at: datetime, table: Any = table) -> sa.ColumnElement[bool]:
            mine = sa.func.coalesce(table.c.node, "") == node
            return mine if table is exchanges else mine & (table.c.settled_at >= began_at)

        where = [~is_of(*lease) for lease in leases.items()]
        cases = [(is_of(*lease), sa.literal(lease[0])) for lease in apart.items()]
        by = sa.case(*cases) if cases else None
        yield from _sums(connection, table, cap, names, now, where=where, lease=by)


def _sums(
    connection: Connection,
    table: sa.Table | sa.TableClause,
    cap: Cap,
    names: Names,
    now: datetime,
    *,
    where: Iterable[sa.ColumnElement[bool]] = (),
    lease: sa.ColumnElement[Any] | None = None,
) -> Iterator[Prior]:
    """Sums of ended requests, or of the holds of open ones."""
    since = cap.since(now)
    c = table.c
    by: list[sa.ColumnElement[Any]] = [c.origin]
    if cap.period == "session":
        since = now - timedelta(days=SESSION_DAYS)
        by += [c.session_id, c.key_fingerprint]
    is_postgresql = connection.dialect.name == "postgresql"
    moment = sa.func.timezone("UTC", c.opened_at) if is_postgresql else c.opened_at
    minute = sa.func.substr(sa.cast(moment, sa.Text), 1, 16)
    if cap.period == "5h":
        by.append(minute)
    scope = Scope(since=since, only=cap.only(), names=names)
    chosen = [*conditions(scope, connection.dialect.name, table), c.source == "live", *where]
    chosen.append(c.state == "open" if table is exchanges else c.outcome != "refused")
    if lease is not None:
        by.append(lease.label("lease"))
    terms = _TERMS if table is requests else _HELD
    sums = [
        sa.func.sum(sa.literal_column(f"({terms[word]})", sa.BigInteger))
        for word in Amounts._fields
    ]
    for row in rows_of(connection, sa.select(*by, *sums).where(*chosen).group_by(*by)):
        origin, *key, usd, listed, tokens, count = tuple(row)
        host = host_of(str(origin))
        if cap.host and not any(pattern(each).match(host or "") for each in texts(cap.host)):
            continue
        session, at = None, now
        if cap.period == "session":
            session = str(key[0]) if key[0] else session_of_key(key[1])
        elif cap.period == "5h":
            at = datetime.fromisoformat(str(key[0])).replace(tzinfo=UTC)
        amounts = Amounts(*(int(each or 0) for each in (usd, listed, tokens, count)))
        yield Prior(key[-1] if lease is not None else None, session, at, amounts)
