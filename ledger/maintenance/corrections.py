"""Database. A further reading of an exchange, where the meter reads its capture differently now.

The old reading and its charges stay where they are; the highest revision counts. A reading with
the same figures is not added, so reading everything again twice adds nothing. Two ledgers that
were corrected alike and are merged hold one such reading, since its id is a digest of its content.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from msgspec.structs import asdict, replace
from sqlalchemy.engine import Connection, Engine

from ledger.model.charge import DIFFERS, Charge
from ledger.model.errors import LedgerError
from ledger.model.exchange import FETCHED, NO_METER, Exchange, Quota, Reading, State
from ledger.store import db
from ledger.store.engines.refusals import REFUSALS, reason_of
from ledger.store.keys import exchange_of, reading_of
from ledger.store.schema.charged import READING_ORDER
from ledger.store.tables import current_charges, exchanges, quotas, readings
from ledger.store.writing import batch_insert

_COMPARED_COLUMNS = tuple(
    name
    for name in batch_insert.READING_COLUMNS
    if name not in ("revision", "meter_version", "read_at", "reason")
)

type Further = tuple[Reading, Sequence[Charge]]
"""A reading to add, and its charges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """An exchange that has ended, with the reading and the cost that count."""

    exchange: Exchange
    reading: Reading
    first_meter_version: str
    """The version that the exchange's own facts are from."""
    cost_picousd: int | None


def find(engine: Engine, ids: Sequence[str]) -> dict[str, Booked]:
    """The booked exchanges of these ids. Those whose end the ledger does not know are left out.
    LedgerError for a row that is damaged.

    By id alone: a recording that was made elsewhere may have rounded the start.
    """
    with engine.connect() as connection:
        rows = connection.execute(
            sa.select(exchanges).where(
                exchanges.c.id.in_(ids), exchanges.c.state != State.OPEN.value
            )
        ).all()
        found = {}
        for row in rows:
            try:
                booked = _booked(connection, row)
            except (KeyError, TypeError, ValueError) as error:
                raise LedgerError(
                    f"the ledger's row of exchange {row.id} is damaged ({type(error).__name__}): "
                    "`tokentee verify` says where"
                ) from error
            if booked is not None:
                found[row.id] = booked
    return found


def booked_of(connection: Connection, opened_at: datetime, exchange_id: str) -> Booked | None:
    """One booked exchange, by its key; None as in `find`."""
    is_it = (exchanges.c.opened_at == opened_at) & (exchanges.c.id == exchange_id)
    return _booked(connection, connection.execute(sa.select(exchanges).where(is_it)).one())


def _booked(connection: Connection, row: Any) -> Booked | None:
    found = _readings(connection, row.opened_at, row.id)
    # The placeholder of a lost exchange has no version.
    read = [each for each in found if each.meter_version != NO_METER]
    if not read or found[0] is not read[0]:
        return None
    current = found[0]
    c = current_charges.c
    amounts = connection.scalars(
        sa.select(c.amount_picousd).where(
            c.opened_at == row.opened_at,
            c.exchange_id == row.id,
            c.reading_id == current.id,
            c.amount_picousd.is_not(None),
        )
    ).all()
    first = min(read, key=lambda each: (each.revision, each.read_at, each.id))
    return Booked(
        exchange=exchange_of(row._asdict()),
        reading=reading_of(current._mapping),
        first_meter_version=first.meter_version,
        cost_picousd=sum(amounts) if amounts else None,
    )


def differences(booked: Reading, reading: Reading) -> dict[str, tuple[Any, Any]]:
    """The figures that differ from the booked ones: name -> (booked, now). Those that were fetched
    later stand in no recording of the exchange."""
    if booked.reason == FETCHED:
        return {}
    # What the provider's own figure differs from was remarked when it was priced.
    remarks = tuple(each for each in booked.usage.remarks if not each.startswith(DIFFERS))
    before = _values(replace(booked, usage=replace(booked.usage, remarks=remarks)))
    now = _values(reading)
    return {
        name: (before[name], now[name]) for name in _COMPARED_COLUMNS if before[name] != now[name]
    }


def add_readings(engine: Engine, batch: Sequence[Further]) -> tuple[int, list[str]]:
    """Add the readings that differ, in one transaction; how many, and a line for each that the
    database refuses. LedgerError if the ledger cannot be written now."""
    added = 0
    refused = []
    try:
        with db.writing(engine) as connection:
            for reading, lines in batch:
                try:
                    with connection.begin_nested():
                        added += add_reading(connection, reading, lines) is not None
                except REFUSALS as error:
                    refused.append(f"{reading.exchange_id}: {reason_of(error)}")
    except sa.exc.DBAPIError as error:
        raise LedgerError(
            f"cannot write the ledger: {reason_of(error)}; run it again, "
            "what is done is not done twice"
        ) from error
    return added, refused


def add_reading(
    connection: Connection, reading: Reading, lines: Sequence[Charge]
) -> Reading | None:
    """Add a reading and its charges as the current revision; the reading that was added, or None
    if the current one has the same figures.

    The caller's connection is one that writes (`db.writing`).
    """
    assert reading.reason, "a further reading says why"
    found = _readings(connection, reading.opened_at, reading.exchange_id)
    assert found, f"exchange {reading.exchange_id} was never settled"
    current = found[0]
    if not differences(reading_of(current._mapping), reading):
        return None
    added = replace(reading, revision=current.revision + 1)
    connection.execute(sa.insert(readings).values(batch_insert.reading_row(added, lines)))
    return added


def add_quotas(engine: Engine, batch: Iterable[Exchange]) -> int:
    """Add what the answers of booked exchanges stated of limits, where it is not known yet and a
    figure changed; how many rows. The earliest first: each is compared with the one before."""
    added = 0
    with db.writing(engine) as connection:
        for exchange in sorted(batch, key=lambda each: each.opened_at):
            q = quotas.c
            is_its = (q.opened_at == exchange.opened_at) & (q.exchange_id == exchange.id)
            if connection.execute(sa.select(q.kind).where(is_its).limit(1)).first() is not None:
                continue
            observed_at = exchange.first_byte_at or exchange.settled_at or exchange.opened_at
            holder = exchange.account or exchange.key_fingerprint or ""
            rows = []
            for each in exchange.quotas:
                last = connection.execute(
                    sa.select(quotas)
                    .where(
                        q.kind == each.kind.value,
                        q.provider == exchange.provider,
                        q.holder == holder,
                        q.window == each.window,
                        q.observed_at <= observed_at,
                    )
                    .order_by(q.observed_at.desc())
                    .limit(1)
                ).first()
                if last is None or _has_changed(last, each):
                    stated = asdict(each)
                    rows.append(
                        {
                            "opened_at": exchange.opened_at,
                            "exchange_id": exchange.id,
                            "provider": exchange.provider,
                            "key_fingerprint": exchange.key_fingerprint,
                            "account": exchange.account,
                            "holder": holder,
                            "observed_at": observed_at,
                            "limit_value": stated.pop("limit"),
                            **stated,
                        }
                    )
            if rows:
                connection.execute(sa.insert(quotas), rows)
            added += len(rows)
    return added


def _has_changed(last: Any, now: Quota) -> bool:
    """As the writer has it (`batch_insert`)."""
    before = (last.limit_value, last.remaining, last.used_ppm, last.status)
    if before != (now.limit, now.remaining, now.used_ppm, now.status):
        return True
    if last.resets_at is None or now.resets_at is None:
        return last.resets_at is not now.resets_at
    moved: float = abs((last.resets_at - now.resets_at).total_seconds())
    return moved >= batch_insert.RESET_SECONDS


def _readings(connection: Connection, opened_at: datetime, exchange_id: str) -> Sequence[Any]:
    """The readings of an exchange, the current one first."""
    return connection.execute(
        sa.select(readings)
        .where(readings.c.opened_at == opened_at, readings.c.exchange_id == exchange_id)
        .order_by(sa.text(READING_ORDER.format("readings")))
    ).all()


def _values(reading: Reading) -> dict[str, Any]:
    """The columns of a reading, as a ledger keeps them."""
    kept = batch_insert.cleaned(batch_insert.reading_values(reading))
    return dict(zip(batch_insert.READING_COLUMNS, kept, strict=True)) | {"read_at": reading.read_at}
