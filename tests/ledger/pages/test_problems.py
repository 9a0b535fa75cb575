"""Problems: each has its count, the worst comes first, and a sound period has none."""

from datetime import timedelta

from ledger.figures.figures import Figures
from ledger.pages.problems import Shipping, problems
from ledger.pages.sums import Counts
from tests.ledger.pages.conftest import NOW


def found(total=None, by_model=None, counts=None, shipping=()):
    return problems(
        total or Figures(requests=100), by_model or {}, counts or Counts(), shipping, now=NOW
    )


def test_a_sound_period_has_none():
    fresh = Shipping(waiting=3, oldest=NOW - timedelta(seconds=5), refused=0, trouble=None)
    assert found(shipping=[fresh]) == []
    # Requests that ended in an error report no usage; that is no finding of its own.
    assert found(Figures(requests=100, errors=3, without_usage=3)) == []


def test_every_kind_is_counted_and_the_worst_comes_first():
    late = Shipping(waiting=7, oldest=NOW - timedelta(hours=2), refused=2, trouble="no route")
    shown = found(
        Figures(requests=100, errors=6, without_usage=9, complete_without_usage=3, unpriced=4),
        {
            "b": Figures(unpriced=4),
            "a": Figures(complete_without_usage=2),
            None: Figures(complete_without_usage=1),
        },
        Counts(lost=1, degraded=2, duplicates=1200, still_open=1),
        [late],
    )
    assert [(one.kind, one.level, one.count) for one in shown] == [
        ("late shipping", "bad", 7),
        ("refused", "bad", 2),
        ("lost", "bad", 1),
        ("degraded", "bad", 2),
        ("unpriced", "look", 4),
        ("without usage", "look", 3),
        ("errors", "look", 6),
        ("duplicates", "note", 1200),
        ("open", "note", 1),
    ]
    texts = {one.kind: f"{one.headline}: {one.advice}" for one in shown}
    assert "no route" in texts["late shipping"]
    assert "b (4)" in texts["unpriced"]
    assert "a (2), (no model) (1)" in texts["without usage"]


def test_other_models_than_asked_for_are_named():
    (one,) = problems(
        Figures(requests=9),
        {},
        Counts(),
        (),
        now=NOW,
        other_models={("gpt-5", "gpt-5-nano"): 2, ("gpt-5", "gpt-4o"): 3},
    )
    assert (one.kind, one.level, one.count) == ("other model", "look", 5)
    assert one.advice.startswith("gpt-4o for gpt-5, gpt-5-nano for gpt-5; `tokentee report")


def test_many_models_are_cut():
    models = {f"m{n}": Figures(unpriced=10 - n) for n in range(6)}
    (one,) = found(Figures(requests=9, unpriced=9), models)
    assert "m3 (7), …" in one.advice
    assert "m4" not in one.advice
