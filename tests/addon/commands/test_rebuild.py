"""`tokentee rebuild`: what today's meter reads otherwise is added, once, and nothing is changed.
`tokentee verify`: quiet where all holds, a line for each breach, and captures as witnesses.
"""

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from addon.metering.settlement import METER_VERSION
from ledger.maintenance.checking import FAULTS_SHOWN_MAX
from ledger.maintenance.promises import PROMISES
from ledger.model.errors import LedgerError
from ledger.model.exchange import NO_METER, Outcome, State, UsageSource
from ledger.model.usage import Usage
from ledger.store import db
from tests.addon.recorded_exchanges import (
    HANDED,
    NOON,
    PRICES,
    SENT,
    STRIPPED,
    captures,
    entry,
    exchange,
    misread,
    reading,
    recording,
)
from tests.app import APP
from tests.ledger.written import put, row, rows
from tests.named import named
from tests.proxy import rows as rows_outside
from tests.proxy.pair import OPENAI, new_tag, pair
from tests.proxy.pair import exchange as pass_one


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return path


@pytest.fixture
def book(engine, prices):
    """Writes exchanges, each with what was read of it, or with what `read` gives."""

    def write(*exchanges, read=reading):
        pairs = [one if isinstance(one, tuple) else (one, read(one)) for one in exchanges]
        put(engine, *(entry(of, was_read, prices) for of, was_read in pairs))

    return write


@pytest.fixture
def book_misread(book):
    """Writes an exchange, and a reading of it that is wrong."""

    def write(*names, **facts):
        book(*((made, misread(made)) for made in (exchange(name, **facts) for name in names)))

    return write


def invoked(command, *words):
    done = CliRunner().invoke(APP, [command, *map(str, words)])
    if isinstance(done.exception, LedgerError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def rebuild(engine, prices):
    return lambda *words: invoked("rebuild", *words, "--ledger", engine.url, "--prices", prices)


def test_what_is_read_otherwise_is_added_once(engine, book, book_misread, rebuild, tmp_path):
    book_misread("wrong", response_id="r-2")
    book(exchange("right"))
    before = rows(engine, "SELECT * FROM exchanges ORDER BY id")
    booked = rows(engine, "SELECT * FROM charges ORDER BY id")
    folder = captures(tmp_path / "captures", recording("wrong"), recording("right"))
    done = rebuild(folder)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "1 exchanges are read differently now, 1 as they are booked" in done.stderr
    assert "1 readings were added" in done.stderr
    # 12 in and 3 out at the prices of the exchange's day: 12 x 1 and 3 x 10 micro-USD.
    assert rows(
        engine,
        "SELECT id, input_tokens, output_tokens, cost_picousd, reading_revision FROM requests "
        "ORDER BY id",
    ) == [("right", 12, 3, 42_000_000, 1), ("wrong", 12, 3, 42_000_000, 2)]
    assert row(engine, "SELECT reason FROM readings WHERE revision = 2") == (
        f"rebuilt by meter {METER_VERSION}: input_tokens 10 -> 12",
    )
    assert rows(engine, "SELECT * FROM exchanges ORDER BY id") == before
    assert set(booked) < set(rows(engine, "SELECT * FROM charges ORDER BY id"))
    assert row(
        engine, "SELECT input_tokens FROM readings WHERE revision = 1 AND exchange_id = 'wrong'"
    ) == (10,)

    done = rebuild(folder)
    assert done.exit_code == 0
    assert "0 exchanges are read differently now, 2 as they are booked" in done.stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (3,)


def test_by_how_much_is_shown_first_and_a_rehearsal_writes_nothing(
    engine, book_misread, rebuild, tmp_path
):
    book_misread("wrong")
    book_misread("other", response_model="m-2", dialect="x.chat")
    folder = captures(tmp_path / "captures", recording("wrong"), recording("other"))
    done = rebuild(folder, "--dry-run")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stderr.splitlines() if line.strip()]
    assert ["openai.chat", "m-1", "1", "10", "12", "3", "3", "$0.000040", "$0.000042"] in lines
    assert ["x.chat", "m-2", "1", "10", "12", "3", "3", "unpriced", "unpriced"] in lines
    assert ["Total", "2", "20", "24", "6", "6", "$0.000040", "$0.000042"] in lines
    assert "nothing was written" in done.stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (2,)


@pytest.mark.parametrize("lost", ["price", "tokens"])
def test_no_booked_figure_is_taken_away_unless_that_is_accepted(
    engine, book, rebuild, tmp_path, lost
):
    """As of `reprice`: a price whose file is not named, or tokens that are not read now."""
    body = SENT if lost == "price" else b'{"id":"x","choices":[{"finish_reason":"stop"}]}'
    one = exchange("a", body)
    book((one, misread(one)))
    folder = captures(tmp_path / "captures", recording("a", body))

    def run(*words):
        if lost == "price":
            return invoked("rebuild", folder, "--ledger", engine.url, *words)
        return rebuild(folder, *words)

    for words, code in (((), 1), (("--dry-run",), 0)):
        done = run(*words)
        assert done.exit_code == code
        assert "1 exchange would lose booked tokens or a price" in done.stderr
        assert "nothing was written" in done.stderr
        assert row(engine, "SELECT COUNT(*) FROM readings") == (1,)
    done = run("--accept")
    assert done.exit_code == 0, done.stderr
    assert "1 readings were added" in done.stderr
    assert row(engine, "SELECT cost_picousd FROM requests") == (None,)


def test_where_usage_was_asked_for_the_capture_is_what_upstream_sent(
    engine, book, rebuild, tmp_path
):
    asked = exchange("asked", **STRIPPED)
    book((asked, misread(asked, usage_source=UsageSource.PARTIAL, usage_json=None)))
    assert rebuild(captures(tmp_path / "captures", recording("asked"))).exit_code == 0
    assert row(engine, "SELECT revision, reason FROM readings WHERE revision = 2") == (
        2,
        f"rebuilt by meter {METER_VERSION}: usage_source partial -> reported, usage_json, input_tokens 10 -> 12",
    )


def test_an_exchange_ends_as_it_did(engine, book, rebuild, tmp_path):
    """The recording of a client that left looks like an answer that was cut."""
    body = SENT[: SENT.index(b"data: ", 1)]
    left = exchange("left", body, outcome=Outcome.CLIENT_LEFT)
    nothing = Usage()
    book((left, reading(left, usage=nothing, usage_json=None, usage_source=UsageSource.NONE)))
    assert rebuild(captures(tmp_path / "captures", recording("left", body))).exit_code == 0
    source, estimated, reason = row(
        engine,
        "SELECT usage_source, estimated_output_tokens, reason FROM readings WHERE revision = 2",
    )
    assert source == "estimated"
    assert estimated > 0
    assert "usage_source none -> estimated" in reason
    assert "input_tokens NULL -> " in reason


def test_what_the_ledger_does_not_have_is_left_alone(engine, book, rebuild, tmp_path):
    known = exchange("known")
    lost = exchange("lost", state=State.LOST, outcome=Outcome.LOST)
    book(known, (lost, reading(lost, revision=0, meter_version=NO_METER, usage=Usage())))
    folder = captures(tmp_path / "captures", *map(recording, ("known", "lost", "new")))
    done = rebuild(folder)
    assert done.exit_code == 0
    assert "2 exchanges are not in the ledger: `tokentee replay FILE` reads them in" in done.stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (2,)


def test_nothing_of_it_in_the_ledger_is_a_no(rebuild, tmp_path):
    done = rebuild(captures(tmp_path / "captures", recording("new")))
    assert done.exit_code == 1
    assert "1 exchanges are not in the ledger" in done.stderr


def test_a_recording_that_is_not_what_upstream_sent_is_not_used(
    engine, book_misread, rebuild, tmp_path
):
    book_misread("wrong")
    done = rebuild(captures(tmp_path / "captures", recording("wrong", HANDED)))
    assert done.exit_code == 1
    assert "not used: wrong: the recording is not what upstream sent" in done.stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (1,)


def test_the_same_recording_twice_counts_once(engine, book_misread, rebuild, tmp_path):
    book_misread("wrong")
    folder = captures(tmp_path / "captures", recording("wrong"), recording("wrong"))
    captures(folder, recording("wrong"), name="copy.jsonl.gz")
    assert "1 readings were added" in rebuild(folder).stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (2,)


def test_what_cannot_be_read_is_said(engine, book_misread, rebuild, tmp_path):
    book_misread("wrong")
    done = rebuild(captures(tmp_path / "captures", recording("wrong"), b"{}\n"))
    assert done.exit_code == 1
    assert "not read: " in done.stderr
    assert row(engine, "SELECT COUNT(*) FROM readings") == (2,)


def test_what_the_database_refuses_is_said(engine, book_misread, rebuild, tmp_path):
    book_misread("one", "two")
    with db.writing(engine) as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT ON readings WHEN NEW.exchange_id = 'one' "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    done = rebuild(captures(tmp_path / "captures", recording("one"), recording("two")))
    assert done.exit_code == 1
    assert "refused: one: not this one" in done.stderr
    assert rows(engine, "SELECT exchange_id FROM readings WHERE revision = 2") == [("two",)]


def test_wrong_calls_of_rebuild(rebuild, tmp_path):
    assert CliRunner().invoke(APP, ["rebuild"]).exit_code == 2
    with pytest.raises(LedgerError, match="no such file"):
        rebuild(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LedgerError, match="nothing to read"):
        rebuild(tmp_path / "empty")


def test_how_an_exchange_is_billed_is_read_again(engine, book, rebuild, tmp_path, monkeypatch):
    """By what the recording says, by the key that the ledger knows, and by the operator's file."""
    names = tmp_path / "names.toml"
    names.write_text('[[plan]]\nname = "Lab"\nkey_hint = "1a2b"\n')
    monkeypatch.setenv("TOKENTEE_NAMES", str(names))
    hinted = exchange("named", provider="openai", key_fingerprint="k1", key_hint="1a2b")
    overage = exchange("overage", provider="openai", key_fingerprint="k2", key_hint="1a2b")
    metered = exchange("metered", provider="openai", key_fingerprint="k3")
    plan = exchange("plan", provider="openai", key_fingerprint="k4")
    unknown = exchange("unknown")
    book(hinted, overage, metered, plan, unknown)
    limits = {"content-type": "text/event-stream", "anthropic-ratelimit-unified-status": "allowed"}
    spent = limits | {"anthropic-ratelimit-unified-overage-in-use": "true"}
    folder = captures(
        tmp_path / "captures",
        recording("named"),
        recording("metered"),
        recording("unknown"),
        recording("plan", headers=limits),
        recording("overage", headers=spent),
    )
    assert rebuild(folder).exit_code == 0
    query = "SELECT id, billing, cost_picousd, list_value_picousd FROM requests ORDER BY id"
    once = rows(engine, query)
    assert once == [
        ("metered", "metered", 42_000_000, 42_000_000),
        ("named", "plan", None, 42_000_000),
        ("overage", "metered", 42_000_000, 42_000_000),
        ("plan", "plan", None, 42_000_000),
        ("unknown", "unknown", 42_000_000, 42_000_000),
    ]
    rebuild(folder)
    assert rows(engine, query) == once
    assert row(engine, "SELECT MAX(revision) FROM readings") == (2,)


def test_what_answers_stated_of_limits_is_added_once(engine, book, rebuild, tmp_path):
    """Exchanges that were booked before limits were kept; a row where a figure changed."""
    for number, name in enumerate(("a", "b", "c")):
        at = NOON + timedelta(minutes=number)
        one = exchange(name, opened_at=at, settled_at=at, key_fingerprint="k", provider="openai")
        book(one)
    codex = {"content-type": "text/event-stream", "x-codex-primary-window-minutes": "300"}
    folder = captures(
        tmp_path / "captures",
        *(
            recording(name, headers=codex | {"x-codex-primary-used-percent": used})
            for name, used in (("a", "10"), ("b", "10"), ("c", "12"))
        ),
    )
    kept = 'SELECT exchange_id, "window", used_ppm, holder FROM quotas ORDER BY exchange_id'
    assert rebuild(folder, "--dry-run").exit_code == 0
    assert rows(engine, kept) == []
    assert "2 rows of limits were added" in rebuild(folder).stderr
    assert rows(engine, kept) == [("a", "5h", 100_000, "k"), ("c", "5h", 120_000, "k")]
    assert "rows of limits" not in rebuild(folder).stderr
    assert len(rows(engine, kept)) == 2


HOLDS = "everything holds\n"


@pytest.fixture
def verify(engine):
    return lambda *words, ledger=engine.url: invoked("verify", *words, "--ledger", ledger)


def test_all_that_holds_is_said_and_the_verdict_printed(book, verify, tmp_path):
    book(exchange("passed"), exchange("asked", **STRIPPED))
    done = verify()
    assert (done.exit_code, done.stdout) == (0, HOLDS)
    assert done.stderr.count("holds   ") == len(PROMISES) + len(["file", "digests"])
    done = verify(captures(tmp_path / "captures", recording("passed"), recording("asked")))
    assert (done.exit_code, done.stdout) == (0, HOLDS)
    assert "digests and lengths are those of the 2 recorded answers" in done.stderr


def test_every_breach_is_a_line_and_counted(book, verify):
    book(
        exchange("a\tb", client_bytes=1),
        *(exchange(f"e{number:02}", client_bytes=2) for number in range(FAULTS_SHOWN_MAX)),
        exchange("later", at=NOON + timedelta(days=1)),
    )
    done = verify()
    assert done.exit_code == 1
    *lines, verdict = [line.split("\t") for line in done.stdout.splitlines()]
    found = f"upstream sent {len(SENT)}, the client was handed 1, taken out were 0"
    assert lines[0] == ["bytes", "a\\x09b", found]
    assert lines[-1] == ["bytes", "", "… and 1 more"]
    assert len(lines) == FAULTS_SHOWN_MAX + 1
    assert verdict == [f"{FAULTS_SHOWN_MAX + 1} breaches"]
    done = verify("--since", "2026-11-03")
    assert done.exit_code == 0
    assert "skipped the SQLite file is sound" in done.stderr
    assert done.stderr.count("holds   ") == len(PROMISES) + len(["digests"])


def test_a_remark_breaks_nothing(book, verify):
    usage = Usage(input_tokens=12, output_tokens=3, reasoning_tokens=4)
    book(exchange("odd"), read=lambda of: reading(of, usage=usage))
    done = verify()
    assert (done.exit_code, done.stdout) == (0, HOLDS)
    assert "remark  what a provider reports as parts does not exceed its totals" in done.stderr


WRONG = hashlib.sha256(b"something else").hexdigest()


@pytest.mark.parametrize(
    ("facts", "body", "found"),
    named({
        "another-answer": ({}, HANDED, "the recorded answer is not what upstream sent"),
        "another-client-digest": ({"client_digest": WRONG},
            SENT,
            "client_digest is {WRONG}, the recording gives {SENT}"),
        "something-else-was-removed": (STRIPPED | {"removed_digest": WRONG},
            SENT,
            "removed_digest is {WRONG}, the recording gives {REMOVED}"),
        "a-usage-key-was-left-in": (STRIPPED | {"client_bytes": len(HANDED) + 4, "removed_bytes": len(SENT) - len(HANDED) - 4},
            SENT,
            f"client_bytes is {len(HANDED) + 4}, the recording gives {len(HANDED)}; removed_bytes "
            f"is {len(SENT) - len(HANDED) - 4}, the recording gives {len(SENT) - len(HANDED)}"),
    }),
)  # fmt: skip
def test_a_recording_as_a_witness(book, verify, tmp_path, facts, body, found):
    book(exchange("a", **facts))
    done = verify(captures(tmp_path / "captures", recording("a", body)))
    assert done.exit_code == 1
    digests = {
        "WRONG": WRONG,
        "SENT": hashlib.sha256(SENT).hexdigest(),
        "REMOVED": STRIPPED["removed_digest"],
    }
    assert f"captured\ta\t{found.format(**digests)}" in done.stdout.splitlines()


def test_an_answer_that_was_cut_off_may_have_held_an_event_back(book, verify, tmp_path):
    cut = len(SENT) - len(b"[DONE]\n\n")
    body, handed = SENT[:cut], HANDED[: -len(b"data: [DONE]\n\n")]
    facts = STRIPPED | {
        "outcome": Outcome.CLIENT_LEFT,
        "client_bytes": len(handed),
        "client_digest": hashlib.sha256(handed).hexdigest(),
    }
    book(exchange("held", body, **facts))
    # At the end of a body that upstream ended itself, what was held went on.
    whole = HANDED[: -len(b"[DONE]\n\n")]
    facts |= {"client_bytes": len(whole), "client_digest": hashlib.sha256(whole).hexdigest()}
    book(exchange("ended", body, **facts))
    folder = captures(tmp_path / "captures", recording("held", body), recording("ended", body))
    done = verify(folder)
    assert (done.exit_code, done.stdout) == (0, HOLDS), done.stderr


def test_what_was_given_up_on_has_no_digests_to_hold_anything_to(book, verify, tmp_path):
    unknown: dict[str, Any] = dict.fromkeys(
        ("response_bytes", "client_bytes", "removed_bytes", "upstream_digest", "client_digest")
    )
    book(exchange("degraded", degraded="KeyError in addon.metering.meter:1", **unknown))
    done = verify(captures(tmp_path / "captures", recording("degraded")))
    assert (done.exit_code, done.stdout) == (0, HOLDS), done.stderr


def test_another_reading_is_a_remark(book, verify, tmp_path):
    book(exchange("a"), read=misread)
    done = verify(captures(tmp_path / "captures", recording("a")))
    assert (done.exit_code, done.stdout) == (0, HOLDS)
    again = f"`tokentee rebuild {tmp_path}/captures`"
    assert f"remark  1 are read differently by this version: {again}" in done.stderr


def test_recordings_that_prove_nothing(book, verify, tmp_path):
    book(exchange("a"))
    done = verify(captures(tmp_path / "captures", recording("new")))
    assert done.exit_code == 1
    assert "1 exchanges are not in the ledger" in done.stderr
    done = verify(captures(tmp_path / "captures", recording("a"), b"{}\n"))
    assert done.exit_code == 1
    assert "not read: " in done.stderr


def test_wrong_calls_of_verify(verify, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        verify(ledger=f"sqlite:///{tmp_path / 'nowhere'}")
    with pytest.raises(LedgerError, match="no such file"):
        verify(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="not a date or period"):
        verify("--since", "whenever")
    assert CliRunner().invoke(APP, ["verify", "--unheard-of"]).exit_code == 2


@pytest.mark.proxy
def test_what_a_proxy_recorded_holds(verify, tmp_path):
    """Asked for by us and by the client, streamed through a real mitmdump, and held to its
    captures; and none of it is read differently."""
    folder = tmp_path / "captures"
    with pair(tmp_path, with_bare=False, options={"tee_capture": str(folder)}) as running:
        for asked in (True, None):
            pass_one(running.tee, OPENAI, new_tag(), asked=asked)
        ledger = running.tee.ledger
        assert any(row["usage_stripped"] for row in rows_outside.exchanges(ledger))
    url = f"sqlite:///{ledger}"
    done = verify(folder, ledger=url)
    assert (done.exit_code, done.stdout) == (0, HOLDS), done.stderr
    assert "those of the 2 recorded answers" in done.stderr
    assert "read differently" not in done.stderr
    done = CliRunner().invoke(APP, ["rebuild", str(folder), "--ledger", url])
    assert done.exit_code == 0
    assert "0 exchanges are read differently now, 2 as they are booked" in done.stderr
