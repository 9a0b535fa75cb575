"""The model that a failure meant: the one that last answered the same name."""

import pytest

from ledger.model.exchange import Outcome
from ledger.store.writing import batches
from tests.ledger.written import opened, rows, settled, writing

pytestmark = pytest.mark.usefixtures("quick")

ALIAS, MAY, NOVEMBER = "gpt-4o", "gpt-4o-2024-05-13", "gpt-4o-2024-11-20"

ENDS = ("client_left", "upstream_cut", "error_frame", "http_error", "refused")


def answered(name, model, **more):
    return settled(name, request_model=ALIAS, response_model=model, **more)


def failed(name, asked=ALIAS, *, outcome=Outcome.HTTP_ERROR, **more):
    return settled(name, request_model=asked, response_model=None, outcome=outcome, **more)


def models(url):
    return dict(rows(url, "SELECT id, model FROM requests"))


def test_a_failure_stands_under_the_model_that_answered_its_name_last(new_sqlite):
    with writing(new_sqlite()) as written:
        for exchange in (
            failed("before"),
            answered("a", MAY),
            failed("b"),
            answered("c", NOVEMBER),
            *(failed(outcome, outcome=Outcome(outcome)) for outcome in ENDS),
            failed("no model named", outcome=Outcome.COMPLETE),
            failed("elsewhere", provider="other"),
            failed("another name", "gpt-4.1"),
            failed("no name", None),
        ):
            written.settle(exchange)
    assert models(written.url) == {
        "before": ALIAS,
        "a": MAY,
        "b": MAY,
        "c": NOVEMBER,
        **dict.fromkeys(ENDS, NOVEMBER),
        "no model named": ALIAS,
        "elsewhere": ALIAS,
        "another name": "gpt-4.1",
        "no name": None,
    }
    facts = dict(rows(written.url, "SELECT id, meant_model FROM exchanges"))
    assert facts["b"] == MAY
    assert facts["before"] is facts["no name"] is facts["a"] is None


@pytest.mark.parametrize(
    ("asked", "answers", "stands_under"),
    [
        pytest.param("openrouter/auto", "gpt-4o-2024-11-20", "openrouter/auto", id="a router"),
        pytest.param("gpt-4o", "gpt-4.1-mini", "gpt-4o", id="another model"),
        pytest.param("gpt-4o", "gpt-4o", "gpt-4o", id="its own name"),
        pytest.param("gemini-2.5-pro", "", "gemini-2.5-pro", id="an empty name"),
        pytest.param("gpt-4o", "openai/gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06", id="vendor"),
    ],
)
def test_only_what_is_the_same_model_is_meant(new_sqlite, asked, answers, stands_under):
    with writing(new_sqlite()) as written:
        written.settle(settled("a", request_model=asked, response_model=answers))
        written.settle(failed("b", asked))
    assert models(written.url)["b"] == stands_under


def test_so_does_what_a_process_leaves_open(new_sqlite):
    with writing(new_sqlite()) as written:
        written.settle(answered("a", NOVEMBER))
        written.open(opened("b", request_model=ALIAS))
        written.open(opened("c", request_model=ALIAS))
        written.settle(answered("c", MAY))
    with writing(written.url, node="host/2/2"):
        assert models(written.url) == {"a": NOVEMBER, "b": NOVEMBER, "c": MAY}
    assert dict(rows(written.url, "SELECT id, state FROM exchanges"))["b"] == "lost"


def test_the_next_process_finds_it_in_the_ledger(new_sqlite, monkeypatch):
    with writing(new_sqlite()) as written:
        written.settle(answered("a", NOVEMBER))
    with writing(written.url, node="host/2/2") as second:
        second.settle(failed("b"))
        second.settle(failed("c", "gpt-4.1"))
        # Another process meanwhile: this one has searched for the name, and searches again later.
        with writing(written.url, node="host/3/3") as third:
            third.settle(settled("d", request_model="gpt-4.1", response_model="gpt-4.1-2025-04-14"))
        second.settle(failed("e", "gpt-4.1"))
        monkeypatch.setattr(batches, "SEARCH_AGAIN_SECONDS", 0.0)
        second.settle(failed("f", "gpt-4.1"))
    found = models(written.url)
    assert [found[name] for name in "bcef"] == [
        NOVEMBER,
        "gpt-4.1",
        "gpt-4.1",
        "gpt-4.1-2025-04-14",
    ]


def test_names_that_clients_invent_are_bounded(new_sqlite, monkeypatch):
    monkeypatch.setattr(batches, "NAMES_MAX", 3)
    known = batches.MeantModels()
    for number in range(9):
        known.learn(
            settled("a", request_model=f"m-{number}", response_model=f"m-{number}-2025-01-01")
        )
    assert len(known._models) == 3
    with writing(new_sqlite()) as written:
        for number in range(9):
            written.settle(failed(f"{number}", f"m-{number}"))
        assert len(written.ledger._batches._meant._searched) == 3
