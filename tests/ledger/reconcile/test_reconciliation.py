"""The ledger as a statement, and providers' beside it."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.reconcile import reconciliation
from ledger.reconcile.comparison import Agreement
from ledger.reconcile.statement import Line, Statement
from ledger.reconcile.statement_files import load
from ledger.reconcile.tries import REGION_FACTORS
from ledger.store import db
from ledger.store.scope import Scope
from tests.ledger.priced import BOTH, NOVEMBER, exchange, fill, filled, reading, settled

DAY = date(2026, 11, 2)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    further = FurtherUsage(
        kind="compaction", model=None, usage=Usage(input_tokens=70, output_tokens=7)
    )
    claude = exchange("claude-haiku-4-5-20251001", provider="anthropic")
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite3'}"
    fill(
        url,
        [
            (
                settled(replace(claude, id="a")),
                reading(
                    input_tokens=1000,
                    cache_read_tokens=900,
                    cache_write_tokens=50,
                    output_tokens=10,
                    further=(further,),
                ),
            ),
            (
                settled(replace(claude, id="b")),
                reading(usage_source=UsageSource.ESTIMATED, output_tokens=10),
            ),
            (settled(replace(exchange(), id="c")), reading(input_tokens=5, output_tokens=1)),
            (
                settled(replace(exchange(), id="d", opened_at=NOVEMBER + timedelta(days=1))),
                reading(input_tokens=5, output_tokens=1),
            ),
        ],
    )
    engine = db.ensure(url)
    yield engine
    engine.dispose()


def test_the_ledger_day_by_day(engine):
    """What a provider counts: with further iterations, without what we only estimate."""
    found = {
        (line.day, line.model): dict(line.figures)
        for line in reconciliation.lines(engine, DAY, DAY, Scope(only=(("provider", "anthropic"),)))
    }
    (figures,) = found.values()
    # claude-haiku-4-5: 50 x $1 + 900 x $0.10 + 50 x $1.25 + 10 x $5; 70 x $1 + 7 x $5
    # The estimated output of 10 x $5 is in no total.
    assert figures == {
        "requests": 2,
        "input_tokens": 1070,
        "cache_read_tokens": 900,
        "cache_write_tokens": 50,
        "output_tokens": 17,
        "cost_picousd": 252_500_000 + 105_000_000,
    }


def statement(provider, *lines):
    return Statement(kind="CSV", provider=provider, lines=lines)


def line(model, day=DAY, **figures):
    return Line(day=day, model=model, figures=figures)


def test_statements_of_one_provider_are_one(engine):
    """Usage in one file, costs in another; the other provider's requests are not asked for."""
    entries = reconciliation.reconcile(
        engine,
        [
            statement("anthropic", line("claude-haiku-4-5", input_tokens=1070)),
            statement("anthropic", line("claude-haiku-4-5", output_tokens=18)),
        ],
        Scope(),
        tolerance=Decimal(0),
    )
    assert [(entry.figure, entry.verdict) for entry in entries] == [
        ("input_tokens", Agreement.EQUAL),
        ("output_tokens", Agreement.DIFFERS),
    ]


def test_a_statement_of_no_provider_is_of_the_whole_ledger(engine):
    entries = reconciliation.reconcile(
        engine, [statement(None, line("gpt-4.1", input_tokens=5))], Scope(), tolerance=Decimal(0)
    )
    assert {(entry.name, entry.verdict) for entry in entries} == {
        ("gpt-4.1", Agreement.EQUAL),
        ("claude-haiku-4-5-20251001", Agreement.ONLY_LEDGER),
    }


def test_only_the_days_of_the_statement_are_compared(engine):
    stated = statement("openai", line("gpt-4.1", input_tokens=5))
    (entry,) = reconciliation.reconcile(engine, [stated], Scope(), tolerance=Decimal(0))
    assert (entry.day, entry.verdict) == (DAY, Agreement.EQUAL)


@pytest.mark.parametrize(
    ("scope", "days"),
    [
        (Scope(since=NOVEMBER), [3]),
        (Scope(since=NOVEMBER.replace(hour=0), until=NOVEMBER), [2]),
        (Scope(until=NOVEMBER.replace(hour=0)), []),
    ],
)
def test_whole_days_of_a_period(engine, scope, days):
    stated = statement(
        "openai",
        line("gpt-4.1", input_tokens=5),
        line("gpt-4.1", DAY + timedelta(days=1), input_tokens=5),
    )
    entries = reconciliation.reconcile(engine, [stated], scope, tolerance=Decimal(0))
    assert [entry.day.day for entry in entries] == days
    assert {entry.verdict for entry in entries} <= {Agreement.EQUAL}


def test_a_statement_from_a_file(tmp_path):
    path = tmp_path / "mistral.csv"
    path.write_text("day,model,cost_usd\n2026-11-02,mistral-large,1\n")
    assert load(str(path), provider="mistral_ai").provider == "mistral_ai"
    assert load(str(path), provider=None).provider is None
    # Whose it is stands in it where it can.
    path.write_text("usage_date_utc,model,cost_usd\n2026-11-02,Claude Haiku 4.5,1\n")
    assert load(str(path), provider="mistral_ai").provider == "anthropic"


def entries_to_explain():
    """Three days: one host in a region that is booked so, one key more, a search, a plan's row."""
    for day in range(3):
        at = NOVEMBER + timedelta(days=day)
        for name, more in (
            ("one", {}),
            ("eu", {"origin": "https://eu.api.openai.com:443"}),
            ("key", {"key_fingerprint": "feedfacefeedface"}),
        ):
            about = exchange("gpt-5.4", at=at, **more)
            yield (
                settled(replace(about, id=f"{name}{day}"), took_ms=(day + 1) * 4 * 3_600_000),
                reading(
                    at=at, input_tokens=200_000, output_tokens=120_000 if name == "key" else 100_000
                ),
            )
        for name, billing in (("search", None), ("plan", Billing.PLAN)):
            read = reading(at=at, input_tokens=10, tool_units={"web_searches": 100})
            yield (
                settled(replace(exchange("gpt-4.1", at=at), id=f"{name}{day}")),
                replace(read, billing=billing),
            )


@pytest.fixture(params=BOTH, scope="module")
def to_explain(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries_to_explain())


REQUESTS = 2.0 + 2.0 * 1.1 + 2.3
"""0.2 x $2.5 + 0.1 x $15; in a region; 0.2 x $2.5 + 0.12 x $15."""
SEARCHES = 1.0 + 10 * 2e-6


def costs(*, one, model="gpt-5.4", days=(0, 1, 2)):
    amounts = {DAY + timedelta(days=day): one for day in days}
    return [
        Line(day=day, model=model, figures={"cost_picousd": round(usd * 10**12)})
        for day, usd in amounts.items()
    ]


@pytest.mark.parametrize(
    ("requests", "searches", "cause"),
    [
        (REQUESTS, SEARCHES, None),
        (REQUESTS - 0.2, SEARCHES, "tokens are booked with a region's factor, billed without"),
        (REQUESTS - 2.3, SEARCHES, "key feedfa is not in the statement"),
        (REQUESTS - 2.2, SEARCHES, "host eu.api.openai.com is not in the statement"),
        (REQUESTS, 2e-5, "web_searches are not billed"),
    ],
)
def test_causes_of_a_difference(to_explain, requests, searches, cause):
    stated = statement(
        "openai",
        *costs(one=requests),
        *costs(one=searches, model="gpt-4.1"),
    )
    ((provider, found),) = reconciliation.explain(
        to_explain, [stated], Scope(), tolerance=Decimal(0)
    )
    assert provider == "openai"
    assert [each.what for each in found.causes] == ([cause] if cause else [])
    assert (found.rest_cells, found.rest_picousd) == (0, 0)
    booked = 3 * (REQUESTS + SEARCHES)
    assert found.ledger_picousd == round(booked * 10**12)


def test_what_a_plan_covers_is_no_cost_of_an_item(to_explain):
    found = reconciliation.lines(to_explain, DAY, DAY, Scope())
    assert sum(line.figures["cost_picousd"] for line in found if line.item) == 10**12
    assert min(line.figures.get("cost_picousd", 0) for line in found) >= 0


def test_a_request_that_ended_on_the_next_day(to_explain):
    """Requests that opened at noon and took twelve hours: billed on the day of their end."""
    stated = statement(
        "openai",
        *costs(one=REQUESTS, days=(0, 1)),
        *costs(one=0, days=(2,)),
        *costs(one=REQUESTS, days=(3,)),
        *costs(one=SEARCHES, model="gpt-4.1"),
    )
    ((_, found),) = reconciliation.explain(to_explain, [stated], Scope(), tolerance=Decimal(0))
    (cause,) = found.causes
    assert cause.what == "the statement counts a request on the day of its end"
    assert cause.moved_picousd == round(REQUESTS * 10**12)


def test_statements_without_costs_are_refused(to_explain):
    line = Line(day=DAY, model="gpt-4.1", figures={"requests": 1})
    with pytest.raises(LedgerError, match="the statements have no costs to explain"):
        reconciliation.explain(
            to_explain, [statement("openai", line)], Scope(), tolerance=Decimal(0)
        )


def test_the_factors_of_regions_are_those_of_the_rules():
    assert sorted(set(reconciliation.region_rules().values())) == sorted(REGION_FACTORS)
