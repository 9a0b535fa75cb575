"""Exchanges and readings for the tests of money."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from ledger import recording
from ledger.model.exchange import Exchange, Outcome, Reading, State, UsageSource
from ledger.model.usage import Usage
from ledger.pricing.prices import PriceBook
from ledger.store import db

NOVEMBER = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)

ORIGINS = {
    "openai": "https://api.openai.com:443",
    "anthropic": "https://api.anthropic.com:443",
    "google": "https://generativelanguage.googleapis.com:443",
    "deepseek": "https://api.deepseek.com:443",
    "openrouter": "https://openrouter.ai:443",
}


def exchange(model="gpt-4.1", *, provider="openai", origin=None, at=NOVEMBER, **more):
    return Exchange(
        **{
            "id": "e1",
            "origin": origin or ORIGINS[provider],
            "provider": provider,
            "dialect": "openai.chat",
            "operation": "chat",
            "path": "/v1/chat/completions",
            "opened_at": at,
            "response_model": model,
            **more,
        }
    )


def reading(at=NOVEMBER, usage_source=UsageSource.REPORTED, **usage):
    return Reading(
        exchange_id="e1",
        opened_at=at,
        meter_version="1",
        usage_source=usage_source,
        usage=Usage(**usage),
        read_at=at,
    )


def amounts(charges):
    """line -> (quantity, unit price, amount)."""
    return {each.line: (each.quantity, each.unit_picousd, each.amount_picousd) for each in charges}


def cost(charges):
    return sum(each.amount_picousd for each in charges)


def reasons(charges):
    return {each.reason for each in charges}


def settled(about, *, outcome=Outcome.COMPLETE, took_ms=None, first_token_ms=None):
    """The exchange as it ended."""
    opened = about.opened_at
    return replace(
        about,
        state=State.SETTLED,
        outcome=outcome,
        settled_at=opened + timedelta(milliseconds=took_ms or 0),
        first_token_at=opened + timedelta(milliseconds=first_token_ms) if first_token_ms else None,
    )


def fill(place, settled_with_readings, *, book=None, still_open=()):
    """Write exchanges as a proxy would, priced by a book, into a URL or an engine's ledger."""
    problems = []
    ledger = recording.open_ledger(
        str(getattr(place, "url", place)),
        node="test/1/1",
        price=(book or PriceBook()).price,
        log=lambda level, line: problems.append((level, line)),
    )
    for about in still_open:
        ledger.open(about)
    receipts = [
        ledger.settle(about, replace(read, exchange_id=about.id, opened_at=about.opened_at))
        for about, read in settled_with_readings
    ]
    ledger.close(timeout_seconds=30)
    assert all(receipt.committed for receipt in receipts), problems


BOTH = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))
"""Parameters of a fixture that yields `empty` or `filled`."""


def empty(request, tmp_path_factory):
    """An engine on an empty ledger, on the database that the fixture asks for."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite3'}"
    else:
        administer, name = request.getfixturevalue("administer"), f"m{uuid.uuid4().hex}"
        template = request.getfixturevalue("migrated_database")
        administer(f"CREATE DATABASE {name} TEMPLATE {template}")
        url = request.getfixturevalue("postgres_server")(name)
    with db.disposing(db.ensure(url)) as engine:
        yield engine
    if request.param == "postgresql":
        administer(f"DROP DATABASE {name} WITH (FORCE)")


def filled(request, tmp_path_factory, settled_with_readings, *, write=fill, **more):
    """The same with these exchanges, which come to PostgreSQL from a SQLite ledger."""
    for engine in empty(request, tmp_path_factory):
        if engine.dialect.name == "sqlite":
            write(engine, settled_with_readings, **more)
        else:
            source = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite3'}"
            write(source, settled_with_readings, **more)
            # Of a part: the core's tests on SQLite do without it.
            from ledger.parts.sync.merging import sync

            sync(source, engine.url.render_as_string(hide_password=False))
        yield engine
