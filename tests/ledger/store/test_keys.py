"""Rows back as the values they were written from."""

import sqlalchemy as sa
from msgspec.structs import asdict, replace

from ledger.model.exchange import UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.store import db
from ledger.store.keys import exchange_of, reading_of
from ledger.store.tables import exchanges, readings
from tests.ledger.priced import exchange, fill, reading, settled


def test_what_was_written_comes_back(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    written = settled(
        exchange(request_model="gpt", tags={"team": "a"}, service_tier="flex", node="test/1/1")
    )
    read = replace(
        reading(
            usage_source=UsageSource.PARTIAL,
            input_tokens=10,
            cache_read_tokens=0,
            tool_units={"web_searches": 2},
            reported_cost_picousd=5,
            is_byok=True,
            remarks=("odd",),
            further=(
                FurtherUsage(
                    kind="compaction",
                    model="claude",
                    usage=Usage(input_tokens=3, tool_units={"web_searches": 1}),
                ),
            ),
        ),
        usage_json='{"prompt_tokens":10}',
        estimated_output_tokens=7,
    )
    fill(url, [(written, read)])
    engine = db.ensure(url)
    with engine.connect() as connection:
        exchange_row = connection.execute(sa.select(exchanges)).one()._asdict()
        reading_row = connection.execute(sa.select(readings)).one()._asdict()
    engine.dispose()
    assert exchange_of(exchange_row) == written
    assert reading_of(reading_row) == read


def test_an_open_exchange_comes_back():
    row = {**dict.fromkeys(exchanges.c.keys()), **asdict(exchange()), "tags": "{}"}
    assert exchange_of(row) == exchange()
