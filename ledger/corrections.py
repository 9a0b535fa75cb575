"""Database. A further reading of an exchange, where the meter reads its capture differently now.

The old reading and its charges stay where they are; the highest revision counts. A reading with
the same figures is not added, so reading everything again twice adds nothing. Two ledgers that
were corrected alike and are merged hold one such reading, since its id is a digest of its content.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ledger import intake
from ledger.records import Charge, Reading
from ledger.tables import charges, readings

_FIGURES = tuple(
    name
    for name in intake.READING_COLUMNS
    if name not in ("revision", "meter_version", "read_at", "reason")
)


def add_reading(
    connection: Connection, reading: Reading, lines: Sequence[Charge]
) -> Reading | None:
    """Add a reading and its charges, as the revision that counts from now on; what was added, or
    None if the one that counts has the same figures.

    The caller's connection is one that writes (`db.writing`).
    """
    assert reading.reason, "a further reading says why"
    current = connection.execute(
        sa.select(readings)
        .where(
            readings.c.opened_at == reading.opened_at,
            readings.c.exchange_id == reading.exchange_id,
        )
        .order_by(readings.c.revision.desc(), readings.c.read_at, readings.c.id)
        .limit(1)
    ).first()
    assert current is not None, f"exchange {reading.exchange_id} was never settled"
    figures = _values(reading)
    if all(figures[name] == current._mapping[name] for name in _FIGURES):
        return None
    added = replace(reading, revision=current.revision + 1)
    values = _values(added)
    key = {"exchange_id": added.exchange_id, "opened_at": added.opened_at}
    reading_id = intake.reading_id(added, lines)
    connection.execute(sa.insert(readings).values(id=reading_id, **key, **values))
    for ordinal, line in enumerate(lines):
        connection.execute(
            sa.insert(charges).values(
                id=f"{reading_id}.{ordinal}",
                reading_id=reading_id,
                ordinal=ordinal,
                revision=1,
                **key,
                **{field.name: getattr(line, field.name) for field in fields(line)},
            )
        )
    return added


def _values(reading: Reading) -> dict[str, Any]:
    values = dict(zip(intake.READING_COLUMNS, intake.reading_values(reading), strict=True))
    return values | {"read_at": reading.read_at}
