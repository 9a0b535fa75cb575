"""A value that no recorder writes, in any column of a ledger, ends no command that reads it.

Such values come from a merge by an older version, a restored file or an SQL prompt. Here each
column of each table holds one, in a row of its own, with the guards of the schema off.
"""

import contextlib
import sqlite3
import traceback
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from ledger.model.errors import LedgerError
from ledger.model.exchange import Quota, QuotaKind
from ledger.store import tables
from ledger.store.engines import urls
from tests.app import APP
from tests.ledger.written import charge_again, opened, priced, put, reading, settled

pytestmark = pytest.mark.large

NOW = datetime.now(UTC).replace(microsecond=0)
# No BLOB is here: JSON has none, so a merge brings none.
VALUES = {
    "year 0": "0000-01-01 00:00:00.000000Z",
    "year 99999": "99999-01-01 00:00:00.000000Z",
    "last day": "9999-12-31 23:59:59.999999Z",
    "first day": "0001-01-01 00:00:00.000000Z",
    "word": "x",
    "empty": "",
    "number": 7,
    "negative": -(2**63),
    "huge": 2**63 - 1,
    "fraction": 1.5,
    "list": '[1, "x", null, [[]], {}]',
    "object": '{"a": [1], "b": null, "c": {"d": "x"}, "e": 1e400}',
    "text": '"x"',
    "null": "null",
    "no json": "{",
    "deep": "[" * 3000 + "]" * 3000,
}
COLUMNS = [
    (table.name, column.name)
    for table in tables.metadata.sorted_tables
    for column in table.columns
    if table.name not in ("outbox", "set_aside", "nodes", "learned")
]
BUDGETS = """
[[budget]]
name = "all"
period = "month"
usd = 10
[[cap]]
name = "day"
period = "day"
usd = 10
"""
CALLS = (
    "report", "report --by day", "report --by hour --format json", "report --by tag --exact",
    "report --by block --format csv", "report --by session --timezone Europe/Berlin",
    "report --html {out}.html", "report --by tag:a --format markdown --since 30d", "requests", "requests --format json",
    "requests --errors", "requests --min-cost 0.1 --unpriced",
    "show e3", "show e50", "show e120 --format json", "top --once", "statusline", "limits",
    "limits --plans", "limits --value", "limits --format json", "context", "context --by part",
    "context --format json", "cache", "cache --format json", "budget --budgets {budgets}",
    "budget check --budgets {budgets}", "export --what requests --format csv {out}-1",
    "export --what charges {out}-2", "export --what focus {out}-3", "export --what requests {out}-4",
    "verify", "db current", "db check", "reprice --dry-run", "names suggest",
    "reconcile {statement}",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory, migrated_file):
    path = tmp_path_factory.mktemp("bad") / "ledger.sqlite3"
    path.write_bytes(migrated_file.read_bytes())
    url = f"sqlite:///{path}"
    quotas = (
        Quota(window="5h", window_name="5h", window_minutes=300, kind=QuotaKind.PLAN, used_ppm=500_000,
              resets_at=NOW + timedelta(hours=1), status="allowed"),
    )  # fmt: skip
    entries = []
    for number in range(len(COLUMNS)):
        at = NOW - timedelta(minutes=number)
        exchange = settled(
            f"e{number}", at=at, tags={"a": "b"}, session_id="s", key_fingerprint="f", quotas=quotas
        )
        read = reading(exchange)
        entries.append((exchange, read, priced(exchange, read)))
    put(url, *entries)
    put(url, (opened("open", at=NOW), None, ()))
    for number in range(0, len(COLUMNS), 9):
        charge_again(url, f"e{number}", 0, 3)
    return path


def spoil(path, value, *, checked):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(f"PRAGMA ignore_check_constraints = {'OFF' if checked else 'ON'}")
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for number, (table, column) in enumerate(COLUMNS):
            name = "id" if table == "exchanges" else "exchange_id"
            if checked and column == "charges":
                continue  # the views read each line as an array; a merge refuses any other
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            where = f"{name} = 'e{number}'" if name in columns else "1"
            with contextlib.suppress(sqlite3.IntegrityError):
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("kind", VALUES)
def test_no_value_of_a_column_ends_a_reader(kind, checked, filled, tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(filled.read_bytes())
    spoil(path, VALUES[kind], checked=checked)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    (tmp_path / "s.csv").write_text("day,model,tokens,cost_usd\n2026-11-02,model-1,100,1\n")
    monkeypatch.setenv("TOKENTEE_LEDGER", f"sqlite:///{path}")
    bad = []
    for call in CALLS:
        words = call.format(
            out=tmp_path / "out", budgets=tmp_path / "budgets.toml", statement=tmp_path / "s.csv"
        ).split()
        result = CliRunner().invoke(APP, words)
        error = result.exception
        if error is None or isinstance(error, SystemExit):
            is_known = result.exit_code in (0, 1)
        else:
            # A report of blocks asks for a period; what the schema refuses may end in one line.
            is_known = isinstance(error, LedgerError) and "--by block" in call
            assert isinstance(error, Exception)
            is_known |= not checked and (isinstance(error, LedgerError) or bool(urls.failed(error)))
        if not is_known:
            frame = error and traceback.extract_tb(error.__traceback__)[-1]
            bad.append(f"{call}: {result.exit_code} {error!r:.200} {frame}")
    assert not bad, "\n".join(bad)
