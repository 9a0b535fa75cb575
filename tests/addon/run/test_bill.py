"""What a command used."""

import contextlib
import sqlite3
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from addon.run import bill
from ledger.model.exchange import CAP_ERROR, Outcome, UsageSource
from ledger.store import spool
from ledger.store.engines import urls
from tests.ledger.priced import exchange, fill, reading, settled
from tests.named import for_each

GPT = "gpt-4.1"
ODD = 'a "b"\\ 😀'


@pytest.fixture
def ledger(tmp_path):
    """Two runs with the same answer, which counts in each."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    mine = exchange(GPT, id="a", tags={"run": "r1"})
    again = replace(mine, id="b", tags={"run": "r2"})
    other = exchange(ODD, id="c", tags={"run": "r2"})
    fill(
        url,
        [
            (settled(mine), reading(input_tokens=1_000, cache_read_tokens=200, output_tokens=50)),
            (settled(again), reading(input_tokens=1_000, cache_read_tokens=200, output_tokens=50)),
            (settled(other), reading(input_tokens=7)),
        ],
    )
    return url


@pytest.fixture
def steps():
    """Returns how many instructions SQLite needs for a bill."""
    counts = Counter[str]()

    def count():
        counts["instructions"] += 1

    def on_connect(driver, _):
        driver.set_progress_handler(count, 1)

    def of(*words, **more):
        counts.clear()
        bill.show(*words, **more)
        return counts["instructions"]

    sa.event.listen(sa.Pool, "connect", on_connect)
    yield of
    sa.event.remove(sa.Pool, "connect", on_connect)


NO_USAGE = reading(usage_source=UsageSource.NONE)
EARLIER = {
    "answered": (settled(exchange(GPT)), reading(input_tokens=7)),
    "refused": (settled(exchange(GPT), outcome=Outcome.REFUSED), NO_USAGE),
    "another figure": (settled(exchange(GPT)), reading(input_tokens=7, reported_cost_picousd=1)),
}


@pytest.mark.parametrize("word", ["tag:run", "node"])
@pytest.mark.parametrize("earlier", EARLIER.values(), ids=EARLIER)
def test_a_bill_reads_the_requests_of_its_run_whatever_the_size_of_the_ledger(
    tmp_path, capsys, steps, word, earlier
):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    one, read = earlier
    start = one.opened_at + timedelta(hours=1)
    mine = settled(exchange(GPT, id="mine", at=start, tags={"run": "r1"}))
    run = {"tag:run": "r1", "node": "test/1/1"}[word]
    fill(url, [(mine, reading(input_tokens=5, reported_cost_picousd=1))])
    small = steps(url, run, word, since=start)
    alone = capsys.readouterr().err
    assert GPT in alone
    older = [
        replace(one, id=f"e{number}", opened_at=start - timedelta(milliseconds=number + 1))
        for number in range(400)
    ]
    fill(url, [(each, read) for each in older])
    # More levels of a tree, but no step for each of the other requests.
    assert steps(url, run, word, since=start) < small + len(older)
    assert capsys.readouterr().err == alone
    assert steps(url, run, word) > small + len(older), "the start of the run is not known"


@for_each(
    "damage",
    [
        lambda path: path.write_bytes(b"x" * path.stat().st_size),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: altered(path, "DROP TABLE meta"),
        lambda path: altered(path, "DROP TABLE quotas"),
        lambda path: altered(path, "ALTER TABLE exchanges DROP COLUMN tags"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_a_line_of_the_bill(tmp_path, capsys, damage):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    fill(url, [(settled(exchange(GPT, tags={"run": "r1"})), reading(input_tokens=7))])
    damage(tmp_path / "ledger.sqlite3")
    assert bill.show(url, "r1")
    assert capsys.readouterr().err.startswith("tokentee: ")


def altered(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for name in ("requests", "usage_daily", "unpriced", "completeness"):
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.execute(statement)


def test_the_bill_names_the_caps_that_refused(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    nothing = reading(usage_source=UsageSource.NONE)
    refusal: Any = {"outcome": Outcome.REFUSED, "http_status": 402, "error_type": CAP_ERROR}
    rows = [("a", "run", "r1"), ("b", "run", "r1"), ("c", "nightly", "r1"), ("d", "run", "r2")]
    fill(
        url,
        [
            (replace(settled(exchange(GPT, id=name, tags={"run": run})), error_code=cap, **refusal),
             nothing)
            for name, cap, run in rows
        ],
    )  # fmt: skip
    assert bill.show(url, "r1")
    said = capsys.readouterr().err
    assert said == "tokentee: caps refused 3 requests: nightly 1, run 2\n"


def test_answers_that_were_recorded_before_are_told(ledger, capsys):
    """A served recording answers each run alike; a repeated answer is part of no total."""
    same = {"response_id": "same", "request_digest": "a" * 64, "upstream_digest": "b" * 64}
    for name, run in (("d", "r2"), ("e", "r2"), ("f", "r3")):
        one = exchange(GPT, id=name, tags={"run": run}, **same)
        fill(ledger, [(settled(one), reading(input_tokens=1_000))])
    for run, has_table in (("r2", True), ("r3", False)):
        bill.show(ledger, run)
        text = capsys.readouterr().err
        assert "1 answer was in the ledger already and not counted again" in text
        assert "no LLM request passed" not in text
        assert ("Total" in text) is has_table
    for run, is_none in (("r1", False), ("no such run", True)):
        bill.show(ledger, run)
        text = capsys.readouterr().err
        assert "recorded before" not in text
        assert ("no LLM request passed" in text) is is_none


def test_a_completed_stream_without_usage_is_counted_and_estimated_beside(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    mine = exchange("gpt-4.1", id="a", tags={"run": "r1"})
    silent = replace(reading(usage_source=UsageSource.NONE), estimated_output_tokens=12)
    fill(
        url,
        [
            (settled(mine), reading(input_tokens=10, output_tokens=5)),
            (settled(replace(mine, id="b")), silent),
            (settled(replace(mine, id="c", tags={"run": "r2"})), reading(output_tokens=7)),
        ],
    )
    bill.show(url, "r1")
    shown = capsys.readouterr().err
    lines = shown.splitlines()
    assert lines[1].startswith("This run by model")
    assert lines[2].split()[:3] == ["Model", "Requests", "No"]
    (row,) = [line.split() for line in lines if line.startswith("gpt-4.1")]
    assert row[:4] == ["gpt-4.1", "2", "1", "10"]
    told = " ".join(shown.split())
    assert "without usage, in no total: 1 completed, 0 ended early" in told
    assert "by our estimate ~12 output tokens" in told
    assert f"tokentee report --ledger {url} --only tag:run=r1" in told


def test_the_bill_of_a_shared_ledger_is_read_from_the_spool(tmp_path, capsys, monkeypatch):
    """The shared database may be down, or not have the rows yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url = "postgresql+psycopg://user@db.example.com/ledger"
    path = spool.path_for(urls.parse_url(url))
    path.parent.mkdir(parents=True)
    mine = exchange("gpt-4.1", id="a", tags={"run": "r1"})
    fill(f"sqlite:///{path}", [(settled(mine), reading(input_tokens=10, output_tokens=5))])
    bill.show(url, "r1")
    shown = capsys.readouterr().err
    assert any(line.split()[:2] == ["gpt-4.1", "1"] for line in shown.splitlines())
    assert "db.example.com" in shown


def test_what_ended_early_without_usage_is_counted_with_and_without_an_estimate(tmp_path, capsys):
    """A request that was left before an answer, and two that were cut, of which one is estimated;
    an error expects no usage, and a part of the usage is in the total."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    mine = exchange("gpt-4.1", id="a", tags={"run": "r1"})
    none, estimate = (
        reading(usage_source=each) for each in (UsageSource.NONE, UsageSource.ESTIMATED)
    )
    early = (
        (Outcome.CLIENT_LEFT, none),
        (Outcome.UPSTREAM_CUT, none),
        (Outcome.UPSTREAM_CUT, estimate),
        (Outcome.HTTP_ERROR, none),
        (Outcome.CLIENT_LEFT, reading(usage_source=UsageSource.PARTIAL, input_tokens=9)),
    )
    fill(
        url,
        [
            (replace(settled(replace(mine, id=str(place))), outcome=outcome), read)
            for place, (outcome, read) in enumerate(early)
        ],
    )
    bill.show(url, "r1")
    told = " ".join(capsys.readouterr().err.split())
    assert "without usage, in no total: 0 completed, 3 ended early" in told
    assert "by our estimate" not in told


def test_a_bill_that_lacks_something_is_a_lower_bound(ledger, capsys):
    lacking = "2 exchanges are not in the ledger: the disk is full"
    assert bill.show(ledger, "r1", unrecorded=lacking)
    said = capsys.readouterr().err
    assert said.startswith(f"tokentee: this bill is a lower bound: {lacking}\n")
    assert "This run by model, at least\n" in said
    assert bill.show(ledger, "none", unrecorded=lacking)  # no other reason is looked for
    assert "no LLM request" not in capsys.readouterr().err
    assert bill.show(ledger, "r1")
    assert "at least" not in capsys.readouterr().err


def test_the_hint_of_a_bill_keeps_the_ledger(ledger, capsys, monkeypatch):
    monkeypatch.delenv("TOKENTEE_LEDGER", raising=False)
    bill.show(ledger, "r1")
    assert f"more: tokentee report --ledger {ledger} --only tag:run=r1\n" in capsys.readouterr().err
    monkeypatch.setenv("TOKENTEE_LEDGER", ledger)
    bill.show(ledger, "r1")
    assert "more: tokentee report --only tag:run=r1\n" in capsys.readouterr().err
