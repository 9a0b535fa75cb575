"""One question has one answer on every surface: the same twenty figures, asked of drawn ledgers
before and after their days are summed up, against a plain loop over what was written."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from sqlalchemy.engine import Engine

from addon.parts.telemetry.metrics import Metrics
from addon.parts.telemetry.observer import observed
from addon.proxy.health import Health
from ledger.figures import activity
from ledger.figures.figures import Figures
from ledger.figures.queries import report
from ledger.maintenance import rollup
from ledger.model.charge import Charge, amounts_of
from ledger.model.exchange import (
    CAP_ERROR,
    Billing,
    Exchange,
    Outcome,
    Reading,
    Source,
    State,
    UsageSource,
)
from ledger.model.money import AMOUNT_MAX, PICOUSD_PER_USD
from ledger.model.usage import COUNT_MAX, Usage
from ledger.parts.budgets.caps import Budget
from ledger.parts.budgets.status import statuses
from ledger.parts.exports import focus
from ledger.parts.exports.export import DATASETS, Wanted
from ledger.parts.pages import sections
from ledger.parts.pages.period import Period
from ledger.reports import report_tables
from ledger.settings.names import NO_NAMES
from ledger.store import db
from ledger.store.scope import Scope
from tests import reference
from tests.ledger.written import NOON, charge, opened, put, reading, row, rows, settled

type Answers = Mapping[str, Any]

LATER = NOON.replace(day=28)
"""Every day of a drawn ledger is over, and its month is not."""
SUMMED = (
    "input_tokens",
    "uncached_input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "estimated_input_tokens",
    "estimated_output_tokens",
    "cost_picousd",
    "estimated_cost_picousd",
    "list_value_picousd",
)
COUNTED = (
    *("requests", "refused", "errors", "without_usage", "complete_without_usage", "estimated"),
    "covered",
)


@dataclass(frozen=True)
class Written:
    """One exchange of a drawn ledger."""

    exchange: Exchange
    reading: Reading | None = None
    charges: tuple[Charge, ...] = ()
    counts: bool = True
    """False: open, a duplicate, or refused by a cap, which has a figure of its own."""

    @property
    def is_refused(self) -> bool:
        """Whether it never went upstream."""
        return self.exchange.outcome is Outcome.REFUSED


# Drawing

counts = st.none() | st.sampled_from([0, 1, 7, COUNT_MAX]) | st.integers(0, 10**6)
units = st.none() | st.sampled_from([0, 1, 2_500_000])


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Usage whose parts are no more than their wholes."""
    whole, out = draw(counts), draw(counts)
    share = st.none() | st.integers(0, (whole or 0) // 2)
    return Usage(
        input_tokens=whole,
        cache_read_tokens=draw(share) if whole is not None else None,
        cache_write_tokens=draw(share) if whole is not None else None,
        output_tokens=out,
        reasoning_tokens=draw(st.none() | st.integers(0, out)) if out is not None else None,
    )


@st.composite
def charged(draw: st.DrawFn, usage: Usage) -> tuple[Charge, ...]:
    """Lines with and without a price; a provider's own figure stands alone."""
    if draw(st.integers(0, 5)) == 0:
        return (charge("reported_cost", 1, draw(st.integers(0, 10**12)), price_source="provider"),)
    lines = []
    for line, quantity in (
        ("uncached_input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("compaction.output", draw(st.none() | st.integers(0, 10**9))),
    ):
        if quantity is not None:
            unit = draw(units)
            if unit and quantity * unit > AMOUNT_MAX // 4:
                unit = 0
            lines.append(charge(line, quantity, unit))
    return tuple(lines)


def refused(name: str, **about: Any) -> Written:
    """A request that a cap refused."""
    one = settled(
        name, outcome=Outcome.REFUSED, http_status=402, error_type=CAP_ERROR, error_code="daily",
        **about,
    )  # fmt: skip
    return Written(one, reading(one, usage=Usage(), usage_source=UsageSource.NONE), counts=False)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Written]:
    """Exchanges over three days: live, replayed, imported; open, lost, broken, refused, seen twice."""
    found: list[Written] = []
    for number in range(draw(st.integers(1, 7))):
        name, at = f"e{number}", NOON + timedelta(days=draw(st.integers(0, 2)), minutes=number)
        about: dict[str, Any] = {
            "at": at,
            "request_model": "model-1",
            "response_model": draw(st.sampled_from(["model-1", "model-2", None])),
            "key_fingerprint": draw(st.sampled_from([None, "k1", "k2"])),
            "source": draw(st.sampled_from(Source)),
            "tags": draw(st.sampled_from([{}, {"team": "search"}])),
        }
        kind = draw(
            st.sampled_from(
                ["ended", "ended", "ended", "error", "lost", "open", "refused", "twice"]
            )
        )
        if kind == "refused":
            found.append(refused(name, **about))
        elif kind == "open":
            del about["response_model"]
            found.append(Written(opened(name, **about), counts=False))
        elif kind == "lost":
            lost = settled(name, state=State.LOST, outcome=Outcome.LOST, **about)
            found.append(Written(lost))
        elif kind == "error":
            outcome = draw(st.sampled_from([Outcome.HTTP_ERROR, Outcome.ERROR_FRAME]))
            ended = settled(name, outcome=outcome, http_status=529, **about)
            found.append(
                Written(ended, reading(ended, usage=Usage(), usage_source=UsageSource.NONE))
            )
        else:
            about["outcome"] = draw(st.sampled_from([Outcome.COMPLETE, Outcome.CLIENT_LEFT]))
            if kind == "twice":
                about |= {"response_id": name, "source": Source.LIVE, "content_digest": "c"}
                about |= {"upstream_digest": "u", "request_digest": "q", "key_fingerprint": "k1"}
            ended = settled(name, **about)
            source = draw(st.sampled_from(UsageSource))
            usage = Usage() if source is UsageSource.NONE else draw(usages())
            read = reading(
                ended,
                usage=usage,
                usage_source=source,
                estimated_output_tokens=draw(counts) if source is UsageSource.PARTIAL else None,
                billing=draw(st.none() | st.sampled_from(Billing)),
            )
            lines = () if source is UsageSource.NONE else draw(charged(usage))
            found.append(Written(ended, read, lines))
            if kind == "twice":
                again = settled(f"{name}-again", **{**about, "at": at + timedelta(seconds=1)})
                copy = reading(again, usage=usage, usage_source=source)
                found.append(Written(again, copy, lines, counts=False))
    return found


# The answers


def plain(ledger: list[Written]) -> dict[str, Any]:
    """The figures, by a loop over what was written."""
    found: dict[str, Any] = dict.fromkeys(
        (*COUNTED, "unpriced", "unlisted", "lost"), 0
    ) | dict.fromkeys((*SUMMED, "covered_value_picousd", "cacheable"))

    def add(name: str, value: int | None) -> None:
        if value is not None:
            found[name] = value + (found[name] or 0)

    for one in ledger:
        found["refused"] += one.is_refused
        if not one.counts:
            continue
        source = one.reading.usage_source if one.reading else UsageSource.NONE
        usage = one.reading.usage if one.reading else Usage()
        is_error = one.exchange.outcome in (Outcome.HTTP_ERROR, Outcome.ERROR_FRAME)
        is_complete = one.exchange.outcome is Outcome.COMPLETE
        is_estimated = source is UsageSource.ESTIMATED
        amounts = amounts_of(
            source,
            one.reading.billing if one.reading else None,
            [(line.amount_picousd, line.price_source) for line in one.charges],
        )
        found["requests"] += 1
        found["errors"] += is_error
        found["lost"] += one.exchange.state is State.LOST
        found["without_usage"] += source is UsageSource.NONE and not is_error
        found["complete_without_usage"] += source is UsageSource.NONE and is_complete
        found["estimated"] += is_estimated
        found["covered"] += amounts.is_covered
        is_partial = not amounts.is_complete and not is_estimated
        found["unlisted" if amounts.is_covered else "unpriced"] += is_partial
        add("cost_picousd", amounts.cost_picousd)
        add("estimated_cost_picousd", amounts.estimated_cost_picousd)
        add("list_value_picousd", amounts.list_value_picousd)
        if amounts.is_covered:
            add("covered_value_picousd", amounts.list_value_picousd)
        if is_estimated:
            add("estimated_input_tokens", usage.input_tokens)
            add("estimated_output_tokens", usage.output_tokens)
            continue
        if one.reading:
            add("estimated_output_tokens", one.reading.estimated_output_tokens)
        for name in ("input", "cache_read", "cache_write", "output", "reasoning"):
            add(f"{name}_tokens", getattr(usage, f"{name}_tokens"))
        if usage.input_tokens is not None:
            cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
            add("uncached_input_tokens", usage.input_tokens - cached)
        if usage.cache_read_tokens is not None:
            add("cacheable", usage.input_tokens)
    return found


def by_sql(engine: Engine) -> Answers:
    """A plain SUM over the public view."""
    sums = ", ".join(f"SUM({name}) AS {name}" for name in SUMMED)
    refused = "COUNT(CASE WHEN outcome = 'refused' THEN 1 END)"
    counts = f"COUNT(*) - {refused} AS requests, {refused} AS refused"
    return dict(row(engine, f"SELECT {counts}, {sums} FROM requests")._mapping)


def by_day(engine: Engine) -> Answers:
    """The same over `usage_daily`."""
    names = (*COUNTED, "unpriced", *SUMMED)
    sums = ", ".join(f"SUM({name}) AS {name}" for name in names)
    found = row(engine, f"SELECT {sums} FROM usage_daily")._mapping
    return {
        name: found[name] or (0 if name in (*COUNTED, "unpriced") else found[name])
        for name in names
    }


def by_report(engine: Engine) -> Answers:
    """The sum of the rows of a report by day and model."""
    return _of_figures(report(engine, ("day", "model"), Scope(), now=LATER))


def by_exact_report(engine: Engine) -> Answers:
    """From requests alone, over a period that begins inside a day."""
    scope = Scope(since=NOON - timedelta(hours=1), until=LATER)
    return _of_figures(report(engine, ("team",), scope, now=LATER, is_exact=True))


def by_top(engine: Engine) -> Answers:
    """The screens of each day, and so the lines for the status."""
    days = [activity.take(engine, Scope(), NOON + timedelta(days=day)) for day in range(3)]
    return _of_total(sum((each.today for each in days), Figures()))


def _of_figures(found: Any) -> Answers:
    total = found.total.figures
    shown = report_tables.document(found)["total"]
    assert shown["cost_picousd"] == total.cost_picousd
    assert shown["list_value_picousd"] == total.list_value_picousd
    return _of_total(total)


def _of_total(total: Figures) -> Answers:
    known = {name: getattr(total, name) for name in (*COUNTED, *SUMMED)}
    return known | {
        "unpriced": total.unpriced + total.partial,
        "unlisted": total.unlisted,
        "covered_value_picousd": total.covered_value_picousd,
        "cacheable": total.cacheable_input_tokens,
    }


def by_page(engine: Engine) -> Answers:
    """The total of the first screen."""
    period = Period(since=NOON.replace(day=1, hour=0), until=None, now=LATER)
    found = sections.overview(engine, sections.Question(period=period))
    lost = [each.count for each in found.problems if each.kind == "lost"]
    names = [name for name in COUNTED if name != "estimated"]
    names += ["unlisted", "input_tokens", "cache_read_tokens", "output_tokens"]
    names += ["cost_picousd", "covered_value_picousd"]
    page = {name: getattr(found.total, name) for name in names}
    page["unpriced"] = found.total.without_price
    return page | {"lost": sum(lost), "cacheable": found.total.cacheable_input_tokens}


def by_budget(engine: Engine) -> Answers:
    """A budget of the month."""
    budget = Budget(name="all", usd=Decimal(1), period="month")
    (found,) = statuses(engine, [budget], NO_NAMES, LATER)
    return {
        "cost_picousd or 0": found.spent_picousd,
        "estimated_cost_picousd or 0": found.estimated_picousd,
        "covered_value_picousd or 0": found.covered_value_picousd,
        "unpriced": found.requests_without_price,
    }


def by_focus(engine: Engine) -> Answers:
    """The rows of a FOCUS export."""
    names = tuple(focus.FOCUS_COLUMNS)
    with engine.connect() as connection:
        billed = [
            dict(zip(names, each, strict=True))
            for _, each in DATASETS["focus"].rows(connection, Scope(), Wanted())
        ]
    covered = [each["ListCost"] for each in billed if each["x_Billing"] in ("plan", "free")]
    return {
        "cost_picousd or 0": int(sum(each["BilledCost"] for each in billed) * PICOUSD_PER_USD),
        "covered_value_picousd or 0": int(sum(covered) * PICOUSD_PER_USD),
    }


def by_completeness(engine: Engine) -> Answers:
    """The counts of the view by hour."""
    names = ("refused", "errors", "without_usage", "estimated", "lost")
    sums = ", ".join(f"SUM({name}) AS {name}" for name in names)
    return dict(row(engine, f"SELECT {sums} FROM completeness")._mapping)


def by_grafana(engine: Engine) -> Answers:
    """The numbers of the dashboard over a ledger."""
    found: dict[str, Any] = {}
    board = reference.ROOT / "docs/deploy/grafana/dashboards/tokentee-postgresql.json"
    for panel in json.loads(board.read_text())["panels"]:
        if panel["type"] == "stat":
            query = panel["targets"][0]["rawSql"]
            if engine.dialect.name == "sqlite":
                query = query.replace("::float", " * 1.0")
            query = re.sub(r"\$__timeFilter\(\w+\)", "true", query)
            found |= row(engine, query)._mapping
    return {
        "requests": found["requests"],
        "without_usage": found["without_usage"],
        "unpriced": found["unpriced"],
        "lost": found["lost"],
        "cost_usd": found["cost"],
        "covered_value_usd": found["list_value"],
        "hit_rate": found["hit_rate"],
    }


def by_documentation(engine: Engine) -> Answers:
    """The first question of docs/sql.md."""
    text = "\n".join(page.read_text() for page in reference.PAGES)
    query = re.search(r"^-- What did each model cost this month.*?;", text, re.M | re.S)
    assert query is not None
    begin = NOON.replace(day=1).strftime("%Y-%m-%d")
    asked = query[0].replace("strftime('%Y-%m-01', 'now')", f"'{begin}'")
    models = rows(engine, asked)

    def total(name: str) -> Any:
        known = [value for each in models if (value := each._mapping[name]) is not None]
        return sum(known) if known else None

    return {
        "requests": total("requests") or 0,
        "input_tokens": total("input"),
        "output_tokens": total("output"),
        "cost_usd": total("usd"),
    }


SURFACES: tuple[Callable[[Engine], Answers], ...] = (
    by_sql,
    by_day,
    by_report,
    by_exact_report,
    by_top,
    by_page,
    by_budget,
    by_focus,
    by_completeness,
    by_grafana,
    by_documentation,
)


def by_metrics(ledger: list[Written]) -> Answers:
    """What a proxy counts of the exchanges that it settles."""
    metrics = Metrics(lambda: Health(writer_alive=True, queued_rows=0, open_exchanges=0, dropped=0))
    for one in ledger:
        if (one.counts or one.is_refused) and one.reading:
            metrics.observe(observed(one.exchange, one.reading, one.charges))
    sums: dict[str, float] = {}
    for line in generate_latest(metrics.registry).decode().splitlines():
        if match := re.match(r"tokentee_(\w+)_total\{(.*)\} (\S+)$", line):
            name, labels, value = match.groups()
            kind = re.search(r'type="(\w+)"', labels)
            covered = re.search(r'billing="(plan|free)"', labels)
            for each in (f"{kind[1]}_tokens" if kind else name, covered and f"covered {name}"):
                if each:
                    sums[each] = sums.get(each, 0) + float(value)

    def tokens(*kinds: str) -> float | None:
        found = [sums[f"{kind}_tokens"] for kind in kinds if f"{kind}_tokens" in sums]
        return sum(found) if found else None

    return {
        "cost_usd": sums.get("cost_usd"),
        "list_value_usd": sums.get("list_value_usd"),
        "covered_value_usd": sums.get("covered list_value_usd"),
        "refused": sums.get("refused", 0),
        "unpriced": sums.get("requests_unpriced", 0),
        "estimated": sums.get("requests_estimated", 0),
        "input_tokens": tokens("uncached_input", "cache_read", "cache_write"),
        "output_tokens": tokens("output_visible", "reasoning"),
    }


def differences(expected: dict[str, Any], answers: Answers) -> dict[str, tuple[Any, Any]]:
    """Question -> (expected, answered), where they differ."""
    wrong: dict[str, tuple[Any, Any]] = {}
    right: Any
    for question, answer in answers.items():
        name, _, is_or = question.partition(" or ")
        if name == "hit_rate":
            whole, part = expected["cacheable"], expected["cache_read_tokens"]
            right = pytest.approx(part / whole) if whole else None
        elif name.endswith("_usd"):
            value = expected[f"{name.removesuffix('_usd')}_picousd"]
            right = None if value is None else pytest.approx(value / PICOUSD_PER_USD, abs=1e-9)
        else:
            right = expected[name] or 0 if is_or else expected[name]
            if isinstance(answer, float):
                right = pytest.approx(right)
        is_decimal = isinstance(answer, Decimal) and name.endswith(("_usd", "rate"))
        if (float(answer) if is_decimal else answer) != right:
            wrong[question] = (right, answer)
    return wrong


def a_plan_and_a_guess() -> list[Written]:
    """One of each that a sum has once counted wrong."""
    own = (charge("reported_cost", 1, 7, price_source="provider"),)
    part = (charge("output", 20, 5), charge("cache_read", 40, None))
    found = []
    for number, (source, billing, lines) in enumerate(
        (
            (UsageSource.REPORTED, Billing.PLAN, part),
            (UsageSource.REPORTED, Billing.FREE, part[:1]),
            (UsageSource.REPORTED, None, own),
            (UsageSource.ESTIMATED, None, part),
            (UsageSource.ESTIMATED, Billing.PLAN, part),
            (UsageSource.PARTIAL, Billing.METERED, part),
        )
    ):
        one = settled(f"e{number}", at=NOON + timedelta(minutes=number))
        found.append(Written(one, reading(one, usage_source=source, billing=billing), lines))
    return found


@pytest.mark.large
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(ledgers())
@example(a_plan_and_a_guess())
@example([refused("e1"), *a_plan_and_a_guess()[:1]])
@example([refused("e1")])
def test_every_surface_gives_the_same_figures(tmp_path_factory, ledger):
    path = tmp_path_factory.mktemp("figures") / "ledger.sqlite3"
    expected = plain(ledger)
    wrong = {"by_metrics": differences(expected, by_metrics(ledger))}
    with db.disposing(db.ensure(f"sqlite:///{path}")) as engine:
        put(engine, *((one.exchange, one.reading, one.charges) for one in ledger))
        for surface in SURFACES:
            wrong[surface.__name__] = differences(expected, surface(engine))
        assert rollup.roll(engine, now=LATER) > 0 or not ledger
        for surface in SURFACES:
            wrong[f"{surface.__name__}, rolled up"] = differences(expected, surface(engine))
    assert {surface: found for surface, found in wrong.items() if found} == {}


@pytest.mark.postgres
def test_every_surface_gives_the_same_figures_on_postgresql(new_postgres):
    """The documentation asks PostgreSQL in its own words (below)."""
    ledger = a_plan_and_a_guess()
    surfaces = [each for each in SURFACES if each is not by_documentation]
    with db.disposing(db.ensure(new_postgres())) as engine:
        put(engine, *((one.exchange, one.reading, one.charges) for one in ledger))
        before = {each.__name__: differences(plain(ledger), each(engine)) for each in surfaces}
        rollup.roll(engine, now=LATER)
        after = {each.__name__: differences(plain(ledger), each(engine)) for each in surfaces}
    assert {name: wrong for name, wrong in [*before.items(), *after.items()] if wrong} == {}


@pytest.mark.postgres
def test_every_query_for_postgresql_runs(new_postgres):
    text = "\n".join(page.read_text() for page in reference.PAGES)
    blocks = re.findall(r"^```postgresql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    statements = [each for block in blocks for each in filter(str.strip, block.split(";"))]
    queries = [each for each in statements if not each.lstrip().startswith("GRANT")]
    assert len(queries) >= 3
    with db.disposing(db.ensure(new_postgres())) as engine, engine.connect() as connection:
        for query in queries:
            connection.execute(sa.text(query.replace(":", "\\:"))).fetchall()
