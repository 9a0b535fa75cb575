"""A released proxy of an older version beside this one's commands, on one ledger."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.store.engines.sqlite_file import REVISION
from tests.proxy import rows
from tests.proxy.mitmdump import REPOSITORY, Mitmdump
from tests.proxy.pair import OPENAI, exchange, new_tag
from tests.proxy.test_durability import answer
from tests.proxy.upstream import Upstream

pytestmark = pytest.mark.nightly

OLDER = "f63b2049"
"""It writes schema 0022, and notes nothing in its lock file."""
CALLS = 5


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Path]:
    """The older version's files."""
    tree = tmp_path / "older"
    worktree = ["git", "-C", str(REPOSITORY), "worktree"]
    subprocess.run([*worktree, "add", "--detach", str(tree), OLDER], check=True)
    yield tree
    subprocess.run([*worktree, "remove", "--force", str(tree)], check=True)


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    code = "from addon.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def schema_of(ledger: Path) -> object:
    (row,) = rows.query(ledger, "SELECT version_num FROM alembic_version")
    return row["version_num"]


def test_an_older_proxy_goes_on_recording_beside_a_newer_version(
    tmp_path: Path, older: Path
) -> None:
    with Upstream(answer) as upstream:
        proxy = Mitmdump(
            tmp_path,
            [upstream.url],
            script=older / "addon" / "tee.py",
            options={"ledger_url": f"sqlite:///{tmp_path / 'ledger.db'}"},
            environment={"PYTHONPATH": str(older)},
            has_own_interpreter=True,
        )
        url = f"sqlite:///{proxy.ledger}"
        with proxy:
            assert proxy.wait_for_log(proxy.ACTIVE, 60), proxy.log
            tags = [new_tag() for _ in range(2 * CALLS)]
            for tag in tags[:CALLS]:
                assert exchange(proxy, OPENAI, tag).status == 200
            for words in (("report",), ("db", "upgrade"), ("top",)):
                refused = command(*words, "--ledger", url)
                assert refused.returncode != 0
                assert f"/{proxy.process.pid}/" in refused.stderr, refused
                assert "stop it, then run this again" in refused.stderr
            newer = Mitmdump(
                tmp_path,
                [upstream.url],
                options={"ledger_url": url},
                has_own_interpreter=True,
            )
            newer.launch()
            assert newer.wait() != 0
            assert "stop it, then run this again" in newer.log
            for tag in tags[CALLS:]:
                assert exchange(proxy, OPENAI, tag).status == 200
            assert schema_of(proxy.ledger) == "0022"
        reported = command("report", "--ledger", url)
        assert reported.returncode == 0, reported
        assert schema_of(proxy.ledger) == REVISION
        for tag in tags:
            (row,) = rows.by_tag(proxy.ledger, "case")[tag]
            assert row["state"] == "settled"
