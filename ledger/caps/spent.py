"""Database. What a ledger has spent under a cap.

A request counts what it cost. One whose cost never became known counts what was held for it, as
long as its period lasts; so does one that was lost. Replayed and imported rows count for no cap.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.caps.book import Prior
from ledger.caps.caps import Amounts, Cap
from ledger.model.exchange import COVERED
from ledger.settings.names import Names, pattern, texts
from ledger.store import db
from ledger.store.adding_up import rows_of
from ledger.store.scope import Scope, conditions, requests
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
SESSION_DAYS = 31
"""Sessions that were idle for longer begin anew."""


def before(
    url: str, caps: Iterable[Cap], names: Names, moment: datetime, now: datetime | None = None
) -> list[Prior]:
    """What was settled before a moment, for each cap and session."""
    engine = db.open_existing(url)
    try:
        return [
            each
            for cap in caps
            if cap.period != "run"
            for each in of_cap(engine, cap, names, now or moment, settled_before=moment)
        ]
    finally:
        engine.dispose()


def of_cap(
    engine: Engine,
    cap: Cap,
    names: Names,
    now: datetime,
    *,
    settled_before: datetime | None = None,
) -> list[Prior]:
    """What a cap has spent in its period: by session, or by minute if the period is rolling."""
    since = cap.since(now)
    r = requests.c
    by: list[sa.ColumnElement[Any]] = [r.origin]
    if cap.period == "session":
        since = now - timedelta(days=SESSION_DAYS)
        by += [r.session_id, r.key_fingerprint]
    minute = sa.func.substr(sa.cast(r.opened_at, sa.Text), 1, 16)
    if cap.period == "5h":
        by.append(minute)
    where = [*conditions(Scope(since=since, only=cap.only(), names=names), engine.dialect.name)]
    where += [r.source == "live", r.outcome != "refused"]
    if settled_before is not None:
        where.append(r.settled_at < settled_before)
    sums = [
        sa.func.sum(sa.literal_column(f"({_TERMS[word]})", sa.BigInteger))
        for word in Amounts._fields
    ]
    found = []
    with engine.connect() as connection:
        for row in rows_of(connection, sa.select(*by, *sums).where(*where).group_by(*by)):
            *key, usd, listed, tokens, count = tuple(row)
            host = host_of(str(key[0]))
            if cap.host and not any(pattern(each).match(host or "") for each in texts(cap.host)):
                continue
            session, at = None, now
            if cap.period == "session":
                session = str(key[1]) if key[1] else f"\0{key[2] or ''}"
            elif cap.period == "5h":
                at = datetime.fromisoformat(str(key[1])).replace(tzinfo=UTC)
            amounts = Amounts(*(int(each or 0) for each in (usd, listed, tokens, count)))
            found.append(Prior(cap.name, session, at, amounts))
    return found
