"""Database. What a ledger has spent under a cap.

A request counts what it cost. One whose cost never became known counts what was held for it, as
long as its period lasts; so does one that was lost. Replayed and imported rows count for no cap.
Of live requests with equal answers each counts, as it did when it was settled: a local server gives
equal answers to equal questions, and that they are one response is known when both are booked.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger.model.exchange import COVERED
from ledger.parts.budgets.caps import (
    COST_MAX,
    NOTHING,
    WITHOUT_FIGURE,
    Amounts,
    Cap,
    plus,
    session_of_key,
)
from ledger.pricing.charges import BEYOND
from ledger.settings.names import Names, is_host
from ledger.store.adding_up import rows_of
from ledger.store.scope import Scope, conditions, requests
from ledger.store.tables import exchanges
from ledger.text.origins import host_of

_FREE = f"http_status IN ({', '.join(map(str, WITHOUT_FIGURE))})"
_BEYOND = f"""cost_state IN ('unpriced', 'partial') AND usage_source = 'reported' AND EXISTS (
        SELECT 1 FROM current_charges c WHERE c.opened_at = of.opened_at AND c.exchange_id = of.id
        AND c.reason LIKE '%{BEYOND}')"""
"""What it cost cannot be written."""
_KNOWN = f"usage_source = 'reported' OR outcome = 'http_error' OR {_FREE}"
_COVERED = ", ".join(f"'{each.value}'" for each in COVERED)
_TERMS = {
    "usd": f"""CASE WHEN outcome = 'refused' THEN 0
      WHEN usage_source = 'reported' AND billing IN ({_COVERED}) THEN 0
      WHEN {_BEYOND} THEN {COST_MAX}
      WHEN usage_source = 'reported' AND cost_state IN ('priced', 'reported') THEN cost_picousd
      WHEN outcome = 'http_error' OR {_FREE} THEN COALESCE(cost_picousd, 0)
      ELSE COALESCE(hold_picousd, cost_picousd, 0) END""",
    "list_value_usd": f"""CASE WHEN outcome = 'refused' THEN 0
      WHEN outcome = 'http_error' OR {_FREE} THEN COALESCE(list_value_picousd, 0)
      WHEN {_BEYOND} THEN {COST_MAX}
      WHEN usage_source = 'reported' THEN COALESCE(list_value_picousd, hold_list_value_picousd, 0)
      ELSE COALESCE(hold_list_value_picousd, list_value_picousd, 0) END""",
    "tokens": f"""CASE WHEN outcome = 'refused' THEN 0
      WHEN {_KNOWN} THEN COALESCE(input_tokens, 0) + COALESCE(output_tokens, 0)
        + COALESCE(extra_input_tokens, 0) + COALESCE(extra_output_tokens, 0)
      ELSE COALESCE(hold_tokens, 0) END""",
    "requests": "CASE WHEN outcome = 'refused' THEN 0 ELSE 1 END",
}
"""What one row of the view `requests` counts. As `addon.parts.caps`, which counts as it comes."""
_HELD = {
    "usd": "COALESCE(hold_picousd, 0)",
    "list_value_usd": "COALESCE(hold_list_value_picousd, 0)",
    "tokens": "COALESCE(hold_tokens, 0)",
    "requests": "1",
}
"""What an open row counts."""
_COUNTED = requests.alias("of")
_EQUAL = (
    sa.select(*(exchanges.c.get(column.name, column).label(column.name) for column in requests.c))
    .join_from(exchanges, requests, requests.c.id == exchanges.c.duplicate_of)
    .where(exchanges.c.source == "live")
    .subquery("of")
)
"""Live rows whose answer equals that of an earlier one, with the figures of that one."""
SESSION_DAYS = 31
"""Sessions that were idle for longer begin anew."""


type Account = str | datetime | None
"""A session; a minute of a rolling period; None: the period."""


def of_cap(
    connection: Connection, cap: Cap, names: Names, now: datetime, *, live: Collection[str] = ()
) -> dict[Account, Amounts]:
    """What a cap has spent in its period, and what open requests hold of processes that are not
    `live`: those hold it no more."""
    found: dict[Account, Amounts] = {}
    node = sa.func.coalesce(exchanges.c.node, "")
    tables: list[tuple[sa.FromClause, list[sa.ColumnElement[bool]]]] = [
        (_COUNTED, []),
        (_EQUAL, []),
        (exchanges, [node.not_in(sorted(live))]),
    ]
    for table, where in tables:
        for account, amounts in _sums(connection, table, cap, names, now, where=where):
            found[account] = plus(found.get(account, NOTHING), amounts)
    return found


def total_of_cap(
    connection: Connection, cap: Cap, names: Names, now: datetime
) -> tuple[Amounts, Amounts]:
    """What a cap has spent in its period, and what open requests hold."""
    spent, held = NOTHING, NOTHING
    for table in (_COUNTED, _EQUAL) if cap.stops else (_COUNTED,):
        for _, amounts in _sums(connection, table, cap, names, now):
            spent = plus(spent, amounts)
    for _, amounts in _sums(connection, exchanges, cap, names, now):
        held = plus(held, amounts)
    return spent, held


def _sums(
    connection: Connection,
    table: sa.FromClause,
    cap: Cap,
    names: Names,
    now: datetime,
    *,
    where: Iterable[sa.ColumnElement[bool]] = (),
) -> Iterator[tuple[Account, Amounts]]:
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
    terms = _HELD if table is exchanges else _TERMS
    sums = [
        sa.func.sum(sa.literal_column(f"({terms[word]})", sa.BigInteger))
        for word in Amounts._fields
    ]
    for row in rows_of(connection, sa.select(*by, *sums).where(*chosen).group_by(*by)):
        origin, *key, usd, listed, tokens, count = tuple(row)
        if not is_host(cap.host, host_of(str(origin))):
            continue
        account: Account = None
        if cap.period == "session":
            account = str(key[0]) if key[0] else session_of_key(key[1])
        elif cap.period == "5h":
            account = datetime.fromisoformat(str(key[0])).replace(tzinfo=UTC)
        yield account, Amounts(*(int(each or 0) for each in (usd, listed, tokens, count)))
