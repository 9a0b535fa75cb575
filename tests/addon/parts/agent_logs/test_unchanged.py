"""Logs that have not changed are not read again; whatever changed, and whatever the ledger lost, is."""

import json
import os
import shutil
from datetime import UTC, datetime

import pytest

from addon.parts.agent_logs import booking, files, unchanged
from ledger.store import retention
from tests.addon.parts.agent_logs.importing import run
from tests.addon.parts.agent_logs.logs import PATHS, SESSION, claude, write_home
from tests.ledger.written import rows

OTHER = SESSION.replace("0199", "0200")


@pytest.fixture
def were_read(monkeypatch):
    """The names of the agents whose logs were read, which a test clears."""
    names = []

    def read(agent, path, skipped, start=0):
        names.append(f"{agent.name} from its end" if start else agent.name)
        return original(agent, path, skipped, start)

    original = files.read
    monkeypatch.setattr(booking, "read", read)
    return names


@pytest.fixture
def log(home, engine, were_read):
    """A log with two answers that has been imported."""
    lines = [claude("msg_1", 7), claude("msg_2", 8, requestId="req_2")]
    write_home(home, "claude-code", claude_lines=lines)
    assert "2 booked" in run()
    were_read.clear()
    return home / PATHS["claude-code"]


def text(*calls):
    return "".join(json.dumps(call) + "\n" for call in calls)


def outputs(engine):
    return sorted(value for (value,) in rows(engine, "SELECT output_tokens FROM requests"))


def test_nothing_is_read_a_second_time(home, engine, were_read):
    write_home(home)
    first = run()
    were_read.clear()
    again = run()
    assert were_read == []
    assert "claude-code: 1 log, 1 session: 0 booked, 1 known" in again
    assert "opencode: not read: 1 line (opencode.db)" in first
    assert "opencode: not read: 1 line (opencode.db)" in again
    assert "0 would be booked, 1 known" in run("--dry-run")
    assert were_read == []


def test_a_log_that_has_grown(log, engine, were_read):
    with log.open("a") as file:
        file.write(text(claude("msg_3", 9, requestId="req_3")))
    assert "1 booked, 2 known" in run()
    assert were_read == ["claude-code from its end"]
    assert outputs(engine) == [7, 8, 9]
    were_read.clear()
    assert "0 booked, 3 known" in run()
    assert were_read == []


def test_a_log_in_whose_place_is_another_of_the_same_size(log, engine, were_read):
    about = log.stat()
    written = text(claude("msg_3", 7, requestId="req_3"), claude("msg_4", 8, requestId="req_4"))
    assert len(written) == about.st_size
    log.write_text(written)
    os.utime(log, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert "2 booked" in run()
    assert outputs(engine) == [7, 7, 8, 8]


def test_a_log_that_was_cut(log, engine, were_read):
    log.write_text(text(claude("msg_1", 7)))
    assert "0 booked, 1 known" in run()
    assert were_read == ["claude-code"]
    log.write_text(text(claude("msg_1", 7), claude("msg_5", 6, requestId="req_5")))
    assert "1 booked, 1 known" in run()


def test_a_ledger_that_was_restored_from_an_older_copy(log, engine, tmp_path, were_read):
    """Each copy knows what it has, whatever was imported since."""
    engine.dispose()
    ledger, copy = tmp_path / "ledger.sqlite3", tmp_path / "copy"
    shutil.copy(ledger, copy)
    other = log.with_name(f"{OTHER}.jsonl")
    other.write_text(text(claude("msg_9", 5, requestId="req_9", sessionId=OTHER)))
    with log.open("a") as file:
        file.write(text(claude("msg_3", 9, requestId="req_3")))
    assert "2 booked" in run()
    engine.dispose()
    for path in tmp_path.glob("ledger.sqlite3-*"):
        path.unlink() if path.is_file() else None
    copy.replace(ledger)
    assert outputs(engine) == [7, 8]
    engine.dispose()
    assert "2 booked, 2 known" in run()
    assert outputs(engine) == [5, 7, 8, 9]


def test_requests_that_were_dropped(log, engine, were_read):
    retention.drop_before(engine, datetime(2026, 11, 3, tzinfo=UTC))
    assert outputs(engine) == []
    assert "2 booked" in run()
    assert outputs(engine) == [7, 8]


def test_a_fork_of_an_unchanged_log(log, engine, were_read):
    fork = [
        claude("msg_1", 7, sessionId=OTHER),
        claude("msg_2", 8, requestId="req_2", sessionId=OTHER),
        claude("msg_3", 9, requestId="req_3", sessionId=OTHER),
    ]
    log.with_name(f"{OTHER}.jsonl").write_text(text(*fork))
    assert "2 logs, 2 sessions: 1 booked, 4 known" in run()
    assert were_read == ["claude-code"]
    assert outputs(engine) == [7, 8, 9]


def test_a_period_that_a_log_lies_in_or_not(home, engine, were_read):
    lines = [claude(), claude("msg_2", 8, requestId="req_2", at="2026-11-04T12:00:00Z")]
    write_home(home, "claude-code", claude_lines=lines)
    assert "1 booked, 1 outside of the period" in run("--since", "2026-11-04")
    were_read.clear()
    assert "1 booked, 1 known" in run()  # the first time that all of it is booked
    assert were_read == ["claude-code"]
    were_read.clear()
    assert "0 booked, 2 known" in run("--since", "2026-11-01")
    assert were_read == []
    assert "0 booked, 1 known, 1 outside of the period" in run("--since", "2026-11-04")
    assert were_read == ["claude-code"]
    were_read.clear()
    assert "0 booked, 2 known" in run()
    assert were_read == []


def test_a_name_that_is_no_utf_8(log, were_read):
    log.rename(log.with_name(os.fsdecode(b"\xff.jsonl")))
    assert "0 booked, 2 known" in run()
    were_read.clear()
    assert "0 booked, 2 known" in run()
    assert were_read == []


def test_another_version_of_the_readers_reads_again(log, were_read, monkeypatch):
    monkeypatch.setattr(unchanged, "LOG_METER_VERSION", "log-other")
    assert "0 booked, 2 known" in run()
    assert were_read == ["claude-code"]
