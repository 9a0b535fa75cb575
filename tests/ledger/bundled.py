"""Entries as another ledger hands them over, and written as a merge writes them."""

from typing import Any

import orjson
from sqlalchemy.engine import Engine

from ledger.parts.sync import bundles
from ledger.store import db, tables
from ledger.store.keys import instant_text
from ledger.store.writing import batch_insert
from tests.ledger.written import Entry, key_of


def put(engine: Engine, *entries: Entry) -> None:
    """Write entries, each as a bundle of its own."""
    for entry in entries:
        with db.writing(engine) as connection:
            bundles.write(connection, bundle_of(entry))
        with db.writing(engine) as connection:
            bundles.link(connection, [key_of(entry)])


def bundle_of(entry: Entry) -> bundles.Bundle:
    """One exchange as another ledger would hand it over."""
    exchange, read, lines = entry
    key = key_of(entry)
    facts = batch_insert._exchange_row(exchange, None)[: len(batch_insert.EXCHANGE_COLUMNS)]
    of_reading = batch_insert.reading_row(read, lines) if read is not None else {}
    kept = [[key[0], exchange.id, exchange.segments]] if exchange.segments else []
    holder = exchange.account or exchange.key_fingerprint or ""
    beside = (exchange.provider, exchange.key_fingerprint, exchange.account, holder)
    stated = [
        [key[0], exchange.id, *beside, key[0], *figures]
        for figures in orjson.loads(batch_insert.quota_rows(exchange.quotas))
    ]
    of_quotas = ("opened_at", "exchange_id", "provider", "key_fingerprint", "account", "holder")
    sent = (
        (tables.exchanges, batch_insert.EXCHANGE_COLUMNS, [facts]),
        (tables.readings, tuple(of_reading), [list(of_reading.values())] if of_reading else []),
        (tables.segments, ("opened_at", "exchange_id", "packed"), kept),
        (tables.quotas, (*of_quotas, "observed_at", *batch_insert.QUOTA_COLUMNS), stated),
    )
    as_text: dict[str, Any] = {"default": instant_text, "option": orjson.OPT_PASSTHROUGH_DATETIME}
    return [
        (table, columns, orjson.dumps(found, **as_text).decode())
        for table, columns, found in sent
        if found
    ]
