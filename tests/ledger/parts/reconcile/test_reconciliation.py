"""Ledger and statements under the same names: refused requests, sessions, periods, a discount, and
the command."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, UsageSource
from ledger.parts.reconcile import reconciliation
from ledger.parts.reconcile.comparison import Agreement, Dimension
from ledger.parts.reconcile.statement_files import read
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.parts.reconcile.test_statement_files import HAIKU, analytics, rows
from tests.ledger.priced import NOVEMBER, exchange, filled, reading, settled
from tests.named import for_each

SESSIONS = ("sesn_1", "sesn_1/agent", "sesn_2", "a-claude-code-session", None)
NO_USAGE = reading(usage_source=UsageSource.NONE)


def entries():
    """Two days of $0.15 for each session; and errors."""
    for day in range(2):
        at = NOVEMBER + timedelta(days=day)
        for number, session in enumerate(SESSIONS):
            about = exchange(HAIKU, provider="anthropic", at=at, session_id=session)
            used = reading(at=at, input_tokens=100_000, output_tokens=10_000)
            yield settled(replace(about, id=f"{day}.{number}")), used
    for number, (outcome, read_of) in enumerate(
        (
            (Outcome.HTTP_ERROR, NO_USAGE),
            (Outcome.ERROR_FRAME, NO_USAGE),
            (Outcome.ERROR_FRAME, reading(input_tokens=1000)),
            (Outcome.UPSTREAM_CUT, NO_USAGE),
        )
    ):
        about = exchange("claude-opus-4-6", provider="anthropic")
        yield settled(replace(about, id=f"error{number}"), outcome=outcome), read_of


@pytest.fixture(params=["sqlite"], scope="module")
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries())


def test_refused_requests_are_in_no_count(engine):
    """A 429, or an error in the place of an answer; one that states usage was an answer."""
    day = NOVEMBER.date()
    counts = {
        line.model: line.figures["requests"]
        for line in reconciliation.lines(engine, day, day, Scope())
    }
    assert counts == {HAIKU: 5, "claude-opus-4-6": 2}


def usage(session=None, *, count=1, **more):
    figures = {
        "uncached_input_tokens": 100_000 * count,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 10_000 * count,
        "requests": count,
    }
    return analytics(group={"model": HAIKU, "session_id": session}, usage=figures, **more)


def cost(amount, listed, group=None, **more):
    figures = {"amount": amount, "list_amount": listed, "currency": "USD"}
    return analytics(group=group or {"model": HAIKU}, cost=figures, **more)


ONLY_HAIKU = Scope(only=(("model", HAIKU),))


def compared(engine, *items, by=Dimension.MODEL):
    statement = read("file", rows(*items))
    found = reconciliation.reconcile(engine, [statement], ONLY_HAIKU, by=by, tolerance=Decimal(0))
    return [(entry.name, entry.figure, entry.verdict) for entry in found]


def test_a_session_joins_both_sides(engine):
    """A subagent's requests are those of its session. Sessions of agents are outside of the
    vendor's."""
    items = [usage("sesn_1", count=2), usage("sesn_3"), usage(None, count=2)]
    found = compared(engine, *items, by=Dimension.SESSION)
    assert [each for each in found if each[1] == "requests"] == [
        (None, "requests", Agreement.EQUAL),
        ("sesn_1", "requests", Agreement.EQUAL),
        ("sesn_2", "requests", Agreement.ONLY_LEDGER),
        ("sesn_3", "requests", Agreement.ONLY_STATEMENT),
    ]


def test_where_all_is_in_sessions_each_of_the_ledger_is_a_row(engine):
    found = compared(engine, usage("a-claude-code-session"), by=Dimension.SESSION)
    assert {name: verdict for name, figure, verdict in found if figure == "requests"} == {
        "a-claude-code-session": Agreement.EQUAL,
        "sesn_1": Agreement.ONLY_LEDGER,
        "sesn_2": Agreement.ONLY_LEDGER,
        None: Agreement.ONLY_LEDGER,
    }


def test_a_row_of_several_days_is_compared_with_their_sum(engine):
    whole = {"ends": "2026-11-30T00:00:00Z", "starts": "2026-11-01T00:00:00Z"}
    assert {verdict for *_, verdict in compared(engine, usage(count=10, **whole))} == {
        Agreement.EQUAL
    }
    with pytest.raises(LedgerError, match="2026-11-02 is in more than one period"):
        compared(engine, usage(count=10, **whole), usage(count=5))


@for_each(
    "items, causes",
    [
        ([cost("67.5", "75")], ["the vendor's discount, 10.0000% of its list prices"]),
        # The ledger has the prices that were agreed on.
        ([cost("75", "90")], []),
        ([cost("75", "75")], []),
        (
            [cost("67.5", "75"), cost("90", "100", {"model": None, "cost_type": "session_usage"})],
            [None, "the vendor's discount, 10.0000% of its list prices"],
        ),
        (
            [
                cost(
                    "135",
                    "150",
                    starts="2026-11-01T00:00:00Z",
                    ends="2026-11-30T00:00:00Z",
                )
            ],
            ["the vendor's discount, 10.0000% of its list prices"],
        ),
    ],
)
def test_a_discount_is_a_cause(engine, items, causes):
    """Five requests of a day cost 75 cents."""
    ((_, found),) = reconciliation.explain(
        engine, [read("file", rows(*items))], ONLY_HAIKU, tolerance=Decimal(0)
    )
    assert len(found.causes) >= len(causes)
    for cause, text in zip(found.causes[-len(causes) :] if causes else (), causes, strict=True):
        assert text is None or cause.what.startswith(text)
    assert [cause.kind for cause in found.causes].count("discount") == len(
        [text for text in causes if text]
    )
    total = sum(cause.amount_picousd for cause in found.causes) + found.rest_picousd
    assert found.ledger_picousd + total == found.statement_picousd


def called(engine, path, text, *words):
    path.write_text(text)
    url = engine.url.render_as_string(hide_password=False)
    return CliRunner().invoke(APP, ["reconcile", str(path), "--ledger", url, *words])


def test_the_command_names_the_discount(engine, tmp_path):
    words = ("--only", f"model={HAIKU}", "--by", "session")
    done = called(engine, tmp_path / "c.json", rows(cost("67.5", "75")), *words)
    assert done.exit_code == 1
    assert "the statements' discount off list prices: $0.075" in done.output
    words = ("--only", f"model={HAIKU}", "--explain", "--format=json")
    done = called(engine, tmp_path / "c.json", rows(cost("67.5", "75")), *words)
    (explained,) = json.loads(done.stdout[: done.stdout.rindex("}") + 1])["explained"]
    assert [cause["kind"] for cause in explained["causes"]][-1] == "discount"


CUR = (
    "line_item_product_code,line_item_usage_type,line_item_usage_start_date,line_item_usage_amount,"
    "line_item_unblended_cost\nAmazonEC2,BoxUsage,2026-11-02,1,1\n"
)


@for_each(
    "text, words, problem",
    [
        (CUR, (), "line_item_product_code begins with AmazonBedrock"),
        ('{"data": [], "has_more": false}', (), "(empty report) has no rows with figures"),
        ("day,model,cost_usd\n", (), "(CSV) has no rows with figures"),
        ("day,model,cost_usd\n2026-11-02,m,\n", (), "(CSV) has no rows with figures"),
        (
            "Date,MeterCategory,CostInBillingCurrency\n11/02/2026,Storage,1\n",
            (),
            "(Azure cost details) has no rows of OpenAI, Foundry",
        ),
        (
            '{"usage_start_time": "2026-11-02", "cost": 1, "service": {"description": "Storage"}}',
            (),
            "(Google Cloud billing export) has no rows whose service begins with Vertex AI",
        ),
        (
            "day,model,cost_usd\n2026-11-02,m,1\n2026-11-04,m,1\n",
            ("--since", "2026-12-01"),
            "the statements are of 2026-11-02 to 2026-11-04, and none of their days",
        ),
    ],
)
def test_nothing_read_is_an_error(engine, tmp_path, text, words, problem):
    done = called(engine, tmp_path / "statement", text, *words)
    assert isinstance(done.exception, LedgerError)
    assert str(done.exception).startswith("nothing to compare: ")
    assert problem in str(done.exception)
