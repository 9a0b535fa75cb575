"""Opening a ledger for recording: what the process imports for it, and what stops it."""

import contextlib
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ledger.maintenance import keeper
from ledger.model.errors import LedgerError
from ledger.store.engines.sqlite_file import REVISION
from tests.ledger.written import alter, file_of, rows, run_python, settled, wait_until, writing

RECORD = """
import sys
from datetime import UTC, datetime
from msgspec.structs import replace
from ledger import recording
from ledger.model.exchange import Exchange, Outcome, State
from ledger.model.exchange import Reading, UsageSource
from ledger.model.usage import Usage

def log(*line):
    raise AssertionError(line)

ledger = recording.open_ledger(sys.argv[1], node="host/1/1", log=log)
now = datetime.now(UTC)
opened = Exchange(
    id="a", origin="o", provider="p", dialect="d", operation="chat", path="/", opened_at=now,
    node="host/1/1",
)
ledger.open(opened)
receipt = ledger.settle(
    replace(opened, state=State.SETTLED, outcome=Outcome.COMPLETE, settled_at=now),
    Reading(
        exchange_id="a", opened_at=now, meter_version="1", usage_source=UsageSource.NONE,
        usage=Usage(), read_at=now,
    ),
)
ledger.refresh_lessons()
ledger.close(30)
assert receipt.committed, receipt.error
print([name for name in ("sqlalchemy", "alembic", "ledger.store.tables") if name in sys.modules])
"""


@pytest.mark.process
def test_recording_into_a_sqlite_ledger_imports_no_sqlalchemy(tmp_path):
    """It would hold 14 MB of every proxy's memory, for good."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    for _ in ("a new ledger", "the same again"):
        done = run_python(RECORD, url)
        assert done.stdout == "[]\n", done.stderr
    found = rows(url, "SELECT id, state FROM exchanges")
    assert found == [("a", "settled")] * 2  # opened at different moments


KEEP = """
import sys, time
from ledger.maintenance import keeper

keeper.FIRST_SUMS_SECONDS = 0.0
if len(sys.argv) > 2:
    keeper.COMMAND = (sys.executable, "-c", sys.argv[2])
kept = keeper.Keeper(sys.argv[1], log=lambda *line: print(*line, flush=True))
kept.start()
sys.stdin.readline()
print("sqlalchemy" in sys.modules, kept.health().error, flush=True)
started = time.monotonic()
kept.stop(60)
print(time.monotonic() - started < 30)
"""


@pytest.mark.process
class TestKeeperOfAProxy:
    """Of a process that has not imported SQLAlchemy."""

    @pytest.fixture
    def url(self, new_sqlite):
        """A ledger with a day that waits for its sums."""
        url = new_sqlite()
        with writing(url) as written:
            written.settle(settled("a"))
        # Its end made the sums; a late write makes the day wait again.
        assert not keeper.a_day_waits(file_of(url), datetime.now(UTC))
        alter(url, "UPDATE exchanges SET duplicate_of = 'b'")
        assert keeper.a_day_waits(file_of(url), datetime.now(UTC))
        return url

    @pytest.fixture
    def started(self):
        with contextlib.ExitStack() as stack:

            def start(*arguments):
                process = subprocess.Popen(
                    [sys.executable, "-c", KEEP, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                stack.enter_context(process)
                stack.callback(process.kill)
                return process

            yield start

    def test_sums_are_made_by_a_process_of_their_own(self, url, started):
        process = started(url)
        wait_until(lambda: not keeper.a_day_waits(file_of(url), datetime.now(UTC)))
        assert process.communicate("stop\n", timeout=60)[0] == "False None\nTrue\n"

    def test_what_that_process_says_is_logged(self, url, started):
        process = started(url, "import sys; sys.exit('a day cannot be read')")
        assert process.stdout.readline() == "warning a day cannot be read\n"

    def test_a_stop_ends_it_and_makes_the_sums_itself(self, url, started):
        process = started(url, "import time; time.sleep(600)")
        tasks = Path(f"/proc/{process.pid}/task")
        wait_until(lambda: any(each.read_text() for each in tasks.glob("*/children")))
        assert process.communicate("stop\n", timeout=90)[0] == "False None\nTrue\n"
        assert not keeper.a_day_waits(file_of(url), datetime.now(UTC))

    def test_a_process_that_cannot_be_started_is_a_failure_of_the_keeper(self, url, started):
        broken = KEEP.replace('(sys.executable, "-c", sys.argv[2])', '("/nowhere/python",)')
        assert broken != KEEP
        done = run_python(broken, url, "-")
        assert "the keeper failed" in done.stderr


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(new_sqlite):
    url = new_sqlite()
    alter(url, "UPDATE alembic_version SET version_num = '9999'")
    said = rf"schema 9999, this is {REVISION}.*upgrade tokentee"
    with pytest.raises(LedgerError, match=said), writing(url):
        pass
    assert rows(url, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_day_waits_when_it_is_over_and_has_no_sums(new_sqlite, tmp_path):
    """True where it is not known."""
    now, url = datetime.now(UTC), new_sqlite()
    assert not keeper.a_day_waits(file_of(url), now)
    with writing(url) as written:
        written.settle(settled("a", at=now))
    assert not keeper.a_day_waits(file_of(url), now)
    assert keeper.a_day_waits(file_of(url), now + timedelta(days=1))
    assert keeper.a_day_waits(tmp_path / "none.sqlite3", now)
