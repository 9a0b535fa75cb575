"""Requests by the commit of git that they led to, in repositories that are made here."""

import json
import os
import subprocess
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from ledger.parts.why import commits
from ledger.store import db
from ledger.store.scope import Scope
from tests.app import APP
from tests.ledger.written import NOON, put, settled, whole

MINUTE = timedelta(minutes=1)
GIT = {
    **{name: value for name, value in os.environ.items() if name[:4] != "GIT_"},
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder, *arguments, at=NOON):
    moment = at.isoformat()
    dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
    subprocess.run(["git", *arguments], cwd=folder, env=GIT | dates, check=True, timeout=30)


def commit(folder, minute, subject):
    git(folder, "commit", "-q", "--allow-empty", "-m", subject, at=NOON + minute * MINUTE)


@pytest.fixture
def shop(tmp_path):
    """`main` with commits at minute 10 and 20; `feature` from the first, with one at 15."""
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, -60, "long ago")
    commit(folder, 10, "first")
    git(folder, "checkout", "-q", "-b", "feature")
    commit(folder, 15, "=a formula\x1b[2J")
    git(folder, "checkout", "-q", "main")
    commit(folder, 20, "second")
    return folder


REQUESTS = [  # minute, project, branch, subject of the commit it belongs to
    (0, "shop", "main", "first"),
    (10, "shop", "main", "first"),
    (11, "shop", "main", "second"),
    (12, "shop", "feature", "=a formula\x1b[2J"),
    (16, "shop", "feature", "not committed yet"),
    (21, "shop", "main", "not committed yet"),
    (12, "shop", "deleted..main", "without a branch, or its branch is not here"),
    (12, "shop", None, "without a branch, or its branch is not here"),
    (12, "other", "main", "of another project, or of none"),
    (12, None, None, "of another project, or of none"),
]


def fill(place):
    for number, (minute, project, branch, _) in enumerate(REQUESTS):
        at = NOON + minute * MINUTE
        put(place, whole(settled(f"{number}", at=at, project=project, git_branch=branch)))


def test_a_request_belongs_to_the_next_commit_on_its_branch(engine, shop):
    fill(engine)
    (shop / "src").mkdir()
    found = commits.report_by_commit(engine, Scope(), shop / "src")
    expected: dict[tuple[str | None, str], int] = {}
    for _, project, branch, subject in REQUESTS:
        is_told = project == "shop" and branch in ("main", "feature")
        key = (branch if is_told else None, subject)
        expected[key] = expected.get(key, 0) + 1
    assert {(row.key[1], row.key[3]): row.figures.requests for row in found.rows} == expected
    assert [row.key[2] for row in found.rows[:3]] == [
        "2026-11-02 12:10",
        "2026-11-02 12:15",
        "2026-11-02 12:20",
    ]
    assert all(row.key[0] is None for row in found.rows[3:])
    assert found.total.figures.requests == len(REQUESTS)


def test_on_the_screen_and_in_files(tmp_path, shop, monkeypatch):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with db.disposing(db.ensure(url)):
        pass
    fill(url)
    monkeypatch.chdir(shop)
    asked = ["report", "--by", "commit", "--ledger", url]
    shown = CliRunner().invoke(APP, asked, env={"COLUMNS": "200"}).output
    assert "(no commit)" in shown
    narrow = CliRunner().invoke(APP, asked, env={"COLUMNS": "90"}).output
    for word in ("another", "project,", "none", "committed", "yet"):
        assert word in narrow
    assert "without a commit: 6 of 10 requests, 60% of the" in shown
    assert "\x1b[2J" not in shown
    rows = json.loads(CliRunner().invoke(APP, [*asked, "--format", "json"]).stdout)["rows"]
    assert [row["commit"] is None for row in rows] == [False] * 3 + [True] * 4
    lines = CliRunner().invoke(APP, [*asked, "--format", "csv"]).stdout.splitlines()
    assert len(lines) == 1 + len(rows)
    assert "|" in CliRunner().invoke(APP, [*asked, "--format", "markdown"]).stdout
    by_branch = CliRunner().invoke(APP, ["report", "--by", "branch", "--ledger", url]).output
    assert "without a branch: 2 of 10 requests, 20% of the" in by_branch
    together = CliRunner().invoke(APP, [*asked, "--by", "model"])
    assert "--by commit stands alone" in str(together.exception)


@pytest.mark.parametrize("missing", ["repository", "git", "whole", "time"])
def test_what_is_missing_is_one_clear_error(engine, shop, tmp_path, monkeypatch, missing):
    fill(engine)
    folder, says = shop, "cannot start git: No such file"
    if missing == "repository":
        folder, says = tmp_path, "is in no git repository"
    elif missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif missing == "whole":
        monkeypatch.setattr(commits, "OUTPUT_BYTES_MAX", 10)
        says = "it prints too much"
    else:
        program = tmp_path / "git"
        program.write_text("#!/bin/sh\nexec sleep 30\n")
        program.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(commits, "GIT_SECONDS_MAX", 0.1)
        says = "it was stopped after"
    with pytest.raises(LedgerError, match=says):
        commits.report_by_commit(engine, Scope(), folder)


def test_a_hostile_repository_starts_nothing(engine, shop, tmp_path):
    fill(engine)
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o700)
    for name, value in (
        ("core.fsmonitor", trap),
        ("core.pager", trap),
        ("core.hooksPath", tmp_path),
        ("core.sshCommand", trap),
        ("gpg.program", trap),
        ("log.showSignature", "true"),
        ("pager.log", "true"),
        ("alias.log", f"!{trap}"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::{trap} %S"),
        ("protocol.ext.allow", "always"),
    ):
        git(shop, "config", name, str(value))
    commits.report_by_commit(engine, Scope(), shop)
    head = (shop / ".git" / "refs" / "heads" / "main").read_text().strip()
    (shop / ".git" / "objects" / head[:2] / head[2:]).unlink()  # git would fetch it
    with pytest.raises(LedgerError, match="git"):
        commits.report_by_commit(engine, Scope(), shop)
    assert not sprung.exists()
