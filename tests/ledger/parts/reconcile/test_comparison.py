"""A statement beside the ledger; the ledger as a statement, and providers' beside it."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing, UsageSource
from ledger.model.usage import FurtherUsage, Usage
from ledger.parts.reconcile import reconciliation
from ledger.parts.reconcile.causes import REGION_FACTORS
from ledger.parts.reconcile.comparison import (
    OTHER_ITEMS,
    Agreement,
    Dimension,
    compare,
    spelling,
    unnamed_items,
)
from ledger.parts.reconcile.output import document, summary, table
from ledger.parts.reconcile.statement import Line, Statement
from ledger.parts.reconcile.statement_files import load
from ledger.reports.layout import Amount
from ledger.store.scope import Scope
from tests.ledger.priced import BOTH, NOVEMBER, exchange, filled, reading, settled
from tests.named import for_each

DAY, NEXT = date(2026, 11, 2), date(2026, 11, 3)
CENT = 10**10


def usd(amount):
    return Amount(picousd=int(Decimal(amount) * 10**12))


def line(model="gpt-5", day=DAY, **figures):
    return Line(day=day, model=model, figures=figures)


def verdicts(ledger, statement, tolerance="0"):
    return [
        (entry.day, entry.name, entry.figure, entry.difference, entry.verdict)
        for entry in compare(ledger, statement, tolerance=Decimal(tolerance))
    ]


def test_what_is_equal():
    both = [line(input_tokens=10, output_tokens=5)]
    assert verdicts(both, both) == [
        (DAY, "gpt-5", "input_tokens", 0, Agreement.EQUAL),
        (DAY, "gpt-5", "output_tokens", 0, Agreement.EQUAL),
    ]


def test_only_what_the_statement_speaks_of_is_compared():
    assert verdicts([line(input_tokens=10, cost_picousd=5)], [line(input_tokens=10)]) == [
        (DAY, "gpt-5", "input_tokens", 0, Agreement.EQUAL)
    ]


def test_what_differs_and_what_is_missing():
    ledger = [line(input_tokens=10), line("a", input_tokens=1), line(day=NEXT, input_tokens=7)]
    statement = [line(input_tokens=12), line("b", input_tokens=3)]
    assert verdicts(ledger, statement) == [
        (DAY, "a", "input_tokens", 1, Agreement.ONLY_LEDGER),
        (DAY, "b", "input_tokens", -3, Agreement.ONLY_STATEMENT),
        (DAY, "gpt-5", "input_tokens", -2, Agreement.DIFFERS),
        (NEXT, "gpt-5", "input_tokens", 7, Agreement.ONLY_LEDGER),
    ]


@for_each(
    "figure, tolerance, ours, theirs, verdict",
    [
        ("input_tokens", "0.001", 1000, 1001, Agreement.WITHIN),
        ("input_tokens", "0.001", 1001, 1000, Agreement.WITHIN),
        ("input_tokens", "0.001", 1000, 1002, Agreement.DIFFERS),
        ("input_tokens", "0.001", 1002, 1000, Agreement.DIFFERS),
        ("cost_picousd", "0", CENT + CENT // 2, CENT, Agreement.WITHIN),
        ("cost_picousd", "0", CENT + CENT // 2 + 1, CENT, Agreement.DIFFERS),
        ("cost_picousd", "0", 1, 0, Agreement.WITHIN),
        ("cost_picousd", "0", 2 * CENT, 0, Agreement.DIFFERS),
    ],
)
def test_a_tolerance_and_half_a_cent_of_rounding(figure, tolerance, ours, theirs, verdict):
    ((*_, found),) = verdicts([line(**{figure: ours})], [line(**{figure: theirs})], tolerance)
    assert found is verdict


def test_nothing_on_either_side_is_no_line():
    assert verdicts([line(cache_read_tokens=0)], [line(cache_read_tokens=0)]) == []


@for_each(
    "one, other, are_same",
    [
        ("Claude Opus 4.6", "claude-opus-4-6", True),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("gpt-4o-2024-08-06", "GPT-4o", True),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5", True),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku", True),
        ("gpt-4.1", "gpt-4.1-mini", False),
        ("o3", "o3-pro", False),
        ("openai/gpt-5", "gpt-5", False),
    ],
)
def test_names_of_one_model_or_of_two(one, other, are_same):
    assert (spelling(one) == spelling(other)) is are_same


def test_names_meet_and_the_ledgers_is_shown():
    ledger = [line("gpt-4o-2024-08-06", input_tokens=4), line("gpt-4o-2024-11-20", input_tokens=6)]
    assert verdicts(ledger, [line("GPT-4o", input_tokens=10)]) == [
        (DAY, "gpt-4o-2024-08-06", "input_tokens", 0, Agreement.EQUAL)
    ]


def test_costs_that_name_no_model_at_all_are_compared_by_day():
    ledger = [line("a", cost_picousd=10 * CENT), line("b", cost_picousd=5 * CENT)]
    statement = [line(None, cost_picousd=8 * CENT), line(None, cost_picousd=7 * CENT)]
    assert verdicts(ledger, statement) == [(DAY, None, "cost_picousd", 0, Agreement.EQUAL)]


def test_one_item_without_a_model_leaves_the_models_apart():
    """Searches stand without a model in a cost report, and tokens beside them with one."""
    ledger = [
        line("a", cost_picousd=8 * CENT),
        line("b", cost_picousd=5 * CENT),
        Line(day=DAY, model="a", item="web_searches", figures={"cost_picousd": 2 * CENT}),
    ]
    statement = [
        line("a", cost_picousd=8 * CENT),
        line("b", cost_picousd=6 * CENT),
        Line(day=DAY, model=None, item="web search", figures={"cost_picousd": 2 * CENT}),
    ]
    entries = compare(ledger, statement, tolerance=Decimal(0))
    assert [(entry.name, entry.item, entry.verdict) for entry in entries] == [
        ("a", None, Agreement.EQUAL),
        ("b", None, Agreement.DIFFERS),
        (None, OTHER_ITEMS, Agreement.EQUAL),
    ]
    assert unnamed_items(statement) == {"web search": 2 * CENT}


def test_where_the_statement_has_no_items_the_ledger_counts_its_own_to_their_models():
    ledger = [
        line("a", cost_picousd=8 * CENT),
        Line(day=DAY, model="a", item="web_searches", figures={"cost_picousd": 2 * CENT}),
    ]
    statement = [line("a", cost_picousd=10 * CENT)]
    assert verdicts(ledger, statement) == [(DAY, "a", "cost_picousd", 0, Agreement.EQUAL)]


@for_each("by", [Dimension.KEY, Dimension.PROJECT])
def test_by_key_and_by_project(by):
    def one(name, cost, model=None):
        names = {"key": name} if by is Dimension.KEY else {"project": name}
        return Line(day=DAY, model=model, figures={"cost_picousd": cost * CENT}, **names)

    entries = compare(
        [one("k1", 10), one(None, 3)],
        [one("k1", 4, "a"), one("k1", 6, "b"), one("k2", 1, "a")],
        by=by,
        tolerance=Decimal(0),
    )
    assert [(entry.name, entry.difference // CENT, entry.verdict) for entry in entries] == [
        (None, 3, Agreement.ONLY_LEDGER),
        ("k1", 0, Agreement.EQUAL),
        ("k2", -1, Agreement.ONLY_STATEMENT),
    ]


def test_as_tables():
    entries = compare(
        [line(input_tokens=10, cost_picousd=150 * CENT)],
        [line(input_tokens=10), line(None, cost_picousd=200 * CENT)],
        tolerance=Decimal(0),
    )
    assert table(entries).rows == (
        ("2026-11-02", "(all)", "cost usd", usd("1.5"), usd(2), usd("-0.5"), "differs"),
        ("2026-11-02", "gpt-5", "input tokens", 10, 10, None, "equal"),
    )
    found = document(entries)
    assert found["agrees"] is False
    assert found["verdicts"] == {"differs": 1, "equal": 1}
    assert found["entries"][0]["difference"] == Decimal("-0.5")
    assert found["entries"][1]["ledger"] == 10
    assert summary(entries) == "1 differs, 1 equal"


@pytest.fixture(scope="module", params=["sqlite"])
def engine(request, tmp_path_factory):
    further = FurtherUsage(
        kind="compaction", model=None, usage=Usage(input_tokens=70, output_tokens=7)
    )
    claude = exchange("claude-haiku-4-5-20251001", provider="anthropic")
    cached = {"input_tokens": 1000, "cache_read_tokens": 900, "cache_write_tokens": 50}
    next_day, small = NOVEMBER + timedelta(days=1), reading(input_tokens=5, output_tokens=1)
    entries = [
        (
            settled(replace(claude, id="a")),
            reading(**cached, output_tokens=10, further=(further,)),
        ),
        (
            settled(replace(claude, id="b")),
            reading(usage_source=UsageSource.ESTIMATED, output_tokens=10),
        ),
        (settled(exchange(id="c")), small),
        (settled(exchange(id="d", at=next_day)), small),
    ]
    yield from filled(request, tmp_path_factory, entries)


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


def compared(engine, *statements, scope=None):
    return reconciliation.reconcile(engine, statements, scope or Scope(), tolerance=Decimal(0))


def test_statements_of_one_provider_are_one(engine):
    """Usage in one file, costs in another; the other provider's requests are not asked for."""
    entries = compared(
        engine,
        statement("anthropic", line("claude-haiku-4-5", input_tokens=1070)),
        statement("anthropic", line("claude-haiku-4-5", output_tokens=18)),
    )
    assert [(entry.figure, entry.verdict) for entry in entries] == [
        ("input_tokens", Agreement.EQUAL),
        ("output_tokens", Agreement.DIFFERS),
    ]


def test_a_statement_of_no_provider_is_of_the_whole_ledger(engine):
    entries = compared(engine, statement(None, line("gpt-4.1", input_tokens=5)))
    assert {(entry.name, entry.verdict) for entry in entries} == {
        ("gpt-4.1", Agreement.EQUAL),
        ("claude-haiku-4-5-20251001", Agreement.ONLY_LEDGER),
    }


def test_only_the_days_of_the_statement_are_compared(engine):
    stated = statement("openai", line("gpt-4.1", input_tokens=5))
    (entry,) = compared(engine, stated)
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
    entries = compared(engine, stated, scope=scope)
    assert [entry.day.day for entry in entries] == days
    assert {entry.verdict for entry in entries} <= {Agreement.EQUAL}


def test_a_statement_from_a_file(text_file):
    path = text_file("mistral.csv", "day,model,cost_usd\n2026-11-02,mistral-large,1\n")
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


def causes_of(engine, *lines):
    """Of the difference to a statement of OpenAI."""
    stated = [statement("openai", *lines)]
    return reconciliation.explain(engine, stated, Scope(), tolerance=Decimal(0))


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
    stated = *costs(one=requests), *costs(one=searches, model="gpt-4.1")
    ((provider, found),) = causes_of(to_explain, *stated)
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
    ((_, found),) = causes_of(
        to_explain,
        *costs(one=REQUESTS, days=(0, 1)),
        *costs(one=0, days=(2,)),
        *costs(one=REQUESTS, days=(3,)),
        *costs(one=SEARCHES, model="gpt-4.1"),
    )
    (cause,) = found.causes
    assert cause.what == "the statement counts a request on the day of its end"
    assert cause.moved_picousd == round(REQUESTS * 10**12)


def test_statements_without_costs_are_refused(to_explain):
    line = Line(day=DAY, model="gpt-4.1", figures={"requests": 1})
    with pytest.raises(LedgerError, match="the statements have no costs to explain"):
        causes_of(to_explain, line)


def test_the_factors_of_regions_are_those_of_the_rules():
    assert sorted(set(reconciliation.region_rules().values())) == sorted(REGION_FACTORS)
