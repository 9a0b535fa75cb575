"""The lists of genai-prices as we read them, held against the library's own objects and rules."""

import re
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import types
from genai_prices.data import providers
from genai_prices.types import ClauseAnd, ClauseOr, ClauseRegex

from ledger.pricing import price_data, published
from ledger.pricing.price_data import (
    ConditionalPrice,
    Model,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDate,
    TimeOfDay,
)
from ledger.pricing.published import Published
from tests.ledger.priced import NOVEMBER

pytestmark = pytest.mark.large

library: list[Any] = providers
OURS = {each.id: each for each in price_data.read()}
PAIRS = [
    (provider.id, theirs, ours)
    for provider in library
    for theirs, ours in zip(provider.models, OURS[provider.id].models, strict=True)
]
TIERS = ("flex", "priority", "batch", "fast", "no such tier")


def texts_of(match):
    """The texts of a match's clauses."""
    if isinstance(match, ClauseOr | ClauseAnd):
        for clause in match.or_ if isinstance(match, ClauseOr) else match.and_:
            yield from texts_of(clause)
    elif not isinstance(match, ClauseRegex):
        yield from vars(match).values()


def names_in(provider):
    """Names that a list knows, and some that look like them."""
    for number, model in enumerate(provider.models):
        yield model.id
        if number % 5 == 0:
            yield from texts_of(model.match)
            yield f"vendor/{model.id.upper()}-20251101"
    yield from ("gpt-5.2-20251211", "claude-20250230-x", "gpt-5-20251399", "", "gpt-99")


def figures_of(price):
    """The prices of a ModelPrice, without their classes."""
    return {
        key: (value.base, [(tier.start, tier.price) for tier in value.tiers])
        if hasattr(value, "tiers")
        else value
        for key, value in vars(price).items()
        if value is not None
    }


def moments_of(model):
    """Moments around each at which a price of the model begins or ends."""
    dated = [*(model.price_variants or ())]
    dated += model.prices if isinstance(model.prices, list) else []
    for constraint in {id(each.constraint): each.constraint for each in dated}.values():
        if isinstance(constraint, types.StartDateConstraint):
            days, clocks = [constraint.start_date], [time()]
        elif constraint is not None:
            days, clocks = [NOVEMBER.date()], [constraint.start_time, constraint.end_time]
        else:
            continue
        for day in days:
            for clock in clocks:
                moment = datetime.combine(day, clock.replace(tzinfo=clock.tzinfo or UTC))
                for seconds in (-1, 0, 1):
                    shifted = moment + timedelta(seconds=seconds)
                    yield shifted.astimezone(timezone(timedelta(hours=-9)))
    yield NOVEMBER


def test_the_lists_are_the_librarys():
    assert [each.id for each in library] == list(OURS)
    assert [theirs.id for _, theirs, _ in PAIRS] == [ours.id for _, _, ours in PAIRS]
    assert len(PAIRS) > 2000


@pytest.mark.parametrize("provider", library, ids=lambda provider: provider.id)
def test_each_name_is_found_where_the_library_finds_it(provider):
    """In its own list, and in those that borrow from it."""
    ours, lists = OURS[provider.id], list(OURS.values())
    lenders = provider.fallback_model_providers or ()
    for lender in (provider, *(each for each in library if each.id in lenders)):
        for name in dict.fromkeys(names_in(lender)):
            theirs = provider.find_model(name, all_providers=library)
            found = ours.find_model(name, all_providers=lists)
            assert (found and found.id) == (theirs and theirs.id), name


def test_a_lender_that_is_not_listed_lends_nothing():
    azure = OURS["azure"]
    assert azure.find_model("gpt-5", all_providers=list(OURS.values())) is not None
    assert azure.find_model("gpt-5", all_providers=[azure]) is None


@pytest.mark.parametrize(
    ("name", "found"),
    [("m-20251211", "m-2025-12-11"), ("m-20251211:free", None), ("m-20250230", None)],
)
def test_a_date_without_dashes(name, found):
    """No list has the 30th of February."""
    match = price_data.Rule(str.__eq__, "m-2025-12-11")
    listed = Model(id="m-2025-12-11", match=match, prices=[], price_variants=[])
    provider = Provider(id="x", models=[listed], fallback_model_providers=[])
    model = provider.find_model(name, all_providers=[])
    assert (model and model.id) == found


def test_each_price_is_the_librarys_at_any_moment_and_tier():
    compared = 0
    for list_id, theirs, ours in PAIRS:
        if not theirs.prices:
            assert not ours.prices
            continue
        for at in moments_of(theirs):
            for tier in (None, *TIERS) if theirs.price_variants else (None,):
                context = {key: tier for key in ("service_tier", "processing", "speed") if tier}
                expected = figures_of(theirs.get_prices(at, context))
                assert figures_of(ours.get_prices(at, context)) == expected, (list_id, ours.id, at)
                compared += 1
    assert compared > 4000


def test_rates_of_the_librarys_objects_are_the_same():
    """They take the place of ours where the data have another shape."""
    for list_id, theirs, ours in PAIRS:
        for tier in (None, "flex"):
            expected, found = (
                published.prices(
                    Published(list_id, model, is_borrowed=False),
                    tier=tier,
                    at=NOVEMBER,
                    source="list",
                )
                for model in (theirs, ours)
            )
            assert found == expected, (list_id, ours.id)


@pytest.mark.process
def test_the_library_is_not_imported():
    code = (
        "import sys; from ledger.pricing import published; "
        "assert published.find('openai', 'gpt-5'); "
        "print([name for name in ('genai_prices', 'pydantic', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_library_of_unknown_rules_is_imported(monkeypatch):
    monkeypatch.setattr(price_data, "KNOWN_RULES", frozenset())
    assert price_data.read() is library


@pytest.mark.parametrize(
    "classes",
    [
        pytest.param({"Provider": price_data._CLASSES["Provider"]}, id="another class"),
        pytest.param(price_data._CLASSES | {"Tier": Provider}, id="another field"),
    ],
)
def test_data_of_another_shape_are_the_librarys(monkeypatch, classes):
    monkeypatch.setattr(price_data, "_CLASSES", classes)
    assert price_data.read() is library


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Provider", {"id": "x", "models": []}),
        ("ModelInfo", {"id": "x", "match": None, "prices": []}),
    ],
)
def test_a_new_field_is_another_shape(name, known):
    """It could change a price."""
    price_data._CLASSES[name](**known, name="X")
    with pytest.raises(TypeError, match=re.escape("unknown: ['discount']")):
        price_data._CLASSES[name](**known, name="X", discount=2)


def test_a_missing_package_is_an_import_error(monkeypatch):
    monkeypatch.setattr(price_data, "find_spec", lambda _: None)
    with pytest.raises(ImportError):
        price_data._folder()


@pytest.mark.parametrize(
    ("start", "end", "clock", "is_active"),
    [
        (time(16, 30), time(0, 30), time(0, 29), True),
        (time(16, 30), time(0, 30), time(0, 30), False),
        (time(16, 30), time(0, 30), time(16, 30), True),
        (time(9), time(17), time(16, 59), True),
        (time(9), time(17), time(17), False),
        # 01:00 to 03:00 at UTC+2 is 23:00 to 01:00
        (
            time(1, tzinfo=timezone(timedelta(hours=2))),
            time(3, tzinfo=timezone(timedelta(hours=2))),
            time(23, 30),
            True,
        ),
    ],
)
def test_hours_of_a_day(start, end, clock, is_active):
    at = datetime.combine(date(2026, 11, 2), clock, UTC)
    assert TimeOfDay(start, end).active(at) is is_active
    assert types.TimeOfDateConstraint(start, end).active(at) is is_active


def test_the_first_variant_that_applies_wins_key_by_key():
    when = {"service_tier": "flex"}
    later = StartDate(date(2027, 1, 1))
    model = Model(
        id="m",
        match=price_data.Rule(str.__eq__, "m"),
        prices=[ConditionalPrice(ModelPrice(input_mtok=Decimal(9), output_mtok=Decimal(9)), later)],
        price_variants=[
            PriceVariant(when, ModelPrice(input_mtok=Decimal(0)), later),
            PriceVariant({"speed": "fast"}, ModelPrice(input_mtok=Decimal(1))),
            PriceVariant(when, ModelPrice(input_mtok=Decimal(2), output_mtok=None)),
            PriceVariant(when, ModelPrice(input_mtok=Decimal(3), cache_read_mtok=Decimal(4))),
        ],
    )
    # No entry is in force, so the first one is.
    assert vars(model.get_prices(NOVEMBER)) == {"input_mtok": 9, "output_mtok": 9}
    assert vars(model.get_prices(NOVEMBER, when)) == {
        "input_mtok": 2,
        "output_mtok": 9,
        "cache_read_mtok": 4,
    }
    assert vars(model.get_prices(NOVEMBER)) == {"input_mtok": 9, "output_mtok": 9}
