"""`tokentee verify`: quiet where all holds, a line for each breach, and captures as witnesses."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from addon.cli import application
from ledger.maintenance.checking import SHOWN_MAX
from ledger.maintenance.promises import PROMISES
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome
from ledger.model.usage import Usage
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
from tests.ledger.written import put
from tests.named import named
from tests.proxy import rows
from tests.proxy.pair import OPENAI, new_tag, pair
from tests.proxy.pair import exchange as pass_one

app = application()


@pytest.fixture
def book(engine, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)

    def write(*exchanges, read=reading):
        put(engine, *(entry(of, read(of), prices) for of in exchanges))

    return write


@pytest.fixture
def verify(engine):
    def run(*words, ledger=str(engine.url)):
        done = CliRunner().invoke(app, ["verify", *map(str, words), "--ledger", ledger])
        if isinstance(done.exception, LedgerError):
            raise done.exception
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


def test_all_that_holds_is_said_and_nothing_printed(book, verify, tmp_path):
    book(exchange("passed"), exchange("asked", **STRIPPED))
    done = verify()
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.count("holds   ") == len(PROMISES) + len(["file", "digests"])
    assert done.stderr.splitlines()[-1] == "everything holds"
    done = verify(captures(tmp_path / "captures", recording("passed"), recording("asked")))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "digests and lengths are those of the 2 recorded answers" in done.stderr


def test_every_breach_is_a_line_and_counted(book, verify):
    book(
        exchange("a\tb", client_bytes=1),
        *(exchange(f"e{number:02}", client_bytes=2) for number in range(SHOWN_MAX)),
        exchange("later", at=NOON + timedelta(days=1)),
    )
    done = verify()
    assert done.exit_code == 1
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    found = f"upstream sent {len(SENT)}, the client was handed 1, taken out were 0"
    assert lines[0] == ["bytes", "a\\x09b", found]
    assert lines[-1] == ["bytes", "", "… and 1 more"]
    assert len(lines) == SHOWN_MAX + 1
    assert f"{SHOWN_MAX + 1} breaches" in done.stderr
    done = verify("--since", "2026-11-03")
    assert done.exit_code == 0
    assert "skipped the SQLite file is sound" in done.stderr
    assert done.stderr.count("holds   ") == len(PROMISES) + len(["digests"])


def test_a_remark_breaks_nothing(book, verify):
    usage = Usage(input_tokens=12, output_tokens=3, reasoning_tokens=4)
    book(exchange("odd"), read=lambda of: reading(of, usage=usage))
    done = verify()
    assert (done.exit_code, done.stdout) == (0, "")
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
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr


def test_what_was_given_up_on_has_no_digests_to_hold_anything_to(book, verify, tmp_path):
    unknown: dict[str, Any] = dict.fromkeys(
        ("response_bytes", "client_bytes", "removed_bytes", "upstream_digest", "client_digest")
    )
    book(exchange("degraded", degraded="KeyError in addon.metering.answers.meter:1", **unknown))
    done = verify(captures(tmp_path / "captures", recording("degraded")))
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr


def test_another_reading_is_a_remark(book, verify, tmp_path):
    book(exchange("a"), read=misread)
    done = verify(captures(tmp_path / "captures", recording("a")))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "remark  1 are read differently by this version: `tokentee rebuild`" in done.stderr


def test_recordings_that_prove_nothing(book, verify, tmp_path):
    book(exchange("a"))
    done = verify(captures(tmp_path / "captures", recording("new")))
    assert done.exit_code == 1
    assert "1 exchanges are not in the ledger" in done.stderr
    done = verify(captures(tmp_path / "captures", recording("a"), b"{}\n"))
    assert done.exit_code == 1
    assert "not read: " in done.stderr


def test_wrong_calls(verify, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        verify(ledger=f"sqlite:///{tmp_path / 'nowhere'}")
    with pytest.raises(LedgerError, match="no such file"):
        verify(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="not a moment"):
        verify("--since", "whenever")
    assert CliRunner().invoke(app, ["verify", "--unheard-of"]).exit_code == 2


@pytest.mark.proxy
def test_what_a_proxy_recorded_holds(verify, tmp_path):
    """Asked for by us and by the client, streamed through a real mitmdump, and held to its
    captures; and none of it is read differently."""
    folder = tmp_path / "captures"
    with pair(tmp_path, with_bare=False, options={"tee_capture": str(folder)}) as running:
        for asked in (True, None):
            pass_one(running.tee, OPENAI, new_tag(), asked=asked)
        ledger = running.tee.ledger
        assert any(row["usage_stripped"] for row in rows.exchanges(ledger))
    url = f"sqlite:///{ledger}"
    done = verify(folder, ledger=url)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert "those of the 2 recorded answers" in done.stderr
    assert "read differently" not in done.stderr
    done = CliRunner().invoke(app, ["rebuild", str(folder), "--ledger", url])
    assert done.exit_code == 0
    assert "0 exchanges are read differently now, 2 as they are booked" in done.stderr
