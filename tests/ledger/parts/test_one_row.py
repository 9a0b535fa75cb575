"""A column is one annotated field and its migration; a dimension of reports is one row."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.store import db
from ledger.store.engines.sqlite_file import REVISION

pytestmark = pytest.mark.large

ROOT = Path(__file__).parents[3]
ROWS = {
    "ledger/model/exchange.py": (
        '    account: Annotated[\n        str | None,\n        Column("Keyed hash',
        '    colour: Annotated[str | None, Column("The colour of the request")] = None\n',
    ),
    "ledger/store/schema/dimensions.py": (
        '    DimensionRow("source", ',
        '    DimensionRow("colour", "colour", is_summed=True, has_field=True),\n'
        '    DimensionRow("parent", "parent_session_id"),\n',
    ),
}
"""File -> where the row goes, and the row."""
MIGRATION = f'''
from alembic import op
revision, down_revision = "9000", "{REVISION}"
def upgrade():
    for table in ("exchanges", "sums"):
        op.execute(f"ALTER TABLE {{table}} ADD COLUMN colour TEXT")
'''
WRITE_AND_READ = """
import datetime, json, sys
from ledger.commands import report as command
from ledger.parts.exports.export import DATASETS
from ledger.figures.queries import report
from ledger.maintenance.rollup import roll
from ledger.parts.pages.live.address import FIELDS
from ledger.store import db
from ledger.store.engines import migration
from ledger.store.schema.descriptions import description_of
from ledger.store.scope import Scope
from tests.ledger.written import NOON, put, rows, settled, whole

engine = db.ensure(sys.argv[1])
put(engine, whole(settled("a", colour="red", parent_session_id="x")))
put(engine, whole(settled("b", parent_session_id="y")))
put(engine, whole(settled("c", colour="red", at=NOON + datetime.timedelta(9))))
found = {"view": rows(engine, "SELECT id, colour FROM requests ORDER BY id")}
for part in ("before", "after"):
    for word, scope in (
        ("colour", Scope()), ("parent", Scope()), ("model", Scope(only=(("colour", "r*"),)))
    ):
        key = f"{word} {part}"
        found[key] = sorted(
            (str(row.key[0]), row.figures.requests) for row in report(engine, [word], scope).rows
        )
    roll(engine, now=NOON + datetime.timedelta(5))
found["help"] = command.report.__annotations__["by"].__metadata__[0].help
found["exported"] = "colour" in dict(DATASETS["requests"].columns)
found["field"] = "colour" in FIELDS
found["described"] = description_of("requests", "colour")
found["stored"] = rows(engine, "SELECT colour, requests FROM sums WHERE summed_by = 'colour'")
found["schema"] = migration.differences(engine)
print(json.dumps(found, default=list))
"""


def test_a_new_column_and_new_dimensions_are_a_row_each(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    db.ensure(url).dispose()
    source = tmp_path / "source"
    for part in ("ledger", "migrations", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "data", "bench", "proxy", "clients")
        shutil.copytree(ROOT / part, source / part, ignore=ignored)
    for name, (before, row) in ROWS.items():
        text = (source / name).read_text()
        assert text.count(before) == 1
        (source / name).write_text(text.replace(before, row + before))
    (source / "migrations" / "versions" / "9000_colour.py").write_text(MIGRATION)
    done = subprocess.run(
        [sys.executable, "-c", WRITE_AND_READ, url],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "colour, parent" in found.pop("help")
    by_colour, by_parent = [["None", 1], ["red", 2]], [["None", 1], ["x", 1], ["y", 1]]
    assert found == {
        "view": [["a", "red"], ["b", None], ["c", "red"]],
        "colour before": by_colour,
        "colour after": by_colour,
        "parent before": by_parent,
        "parent after": by_parent,
        "model before": [["model-1", 2]],
        "model after": [["model-1", 2]],
        "exported": True,
        "field": True,
        "described": "The colour of the request",
        "stored": [[None, 1], ["red", 1]],
        "schema": [],
    }
