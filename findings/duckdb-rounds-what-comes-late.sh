#!/usr/bin/env bash
# Guess: DuckDB takes the types of a JSON-lines or CSV file from its first 20 480 lines; where a later line
#   does not fit (a fraction in a column of integers, a new field), it raises, as it does for a word.
# Seen: a fraction is rounded to the column's integers without a word: a cost that is 0 in the free weeks
#   and $0.4 from then on sums to 0, and 1.5 to 2. `true` counts as 1. A field that begins late is not
#   there, and nothing says so. With `sample_size=-1` all is right. CSV is rounded in the same way.
# Why it matters to a meter: logs of usage begin with integers and few fields. A query over one file of
#   30 000 lines loses money that the first 20 000 do not hint at; a small test file never shows it.
# Versions: duckdb 2.0.1 (Python); 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check duckdb==2.0.1
cd "$folder"
venv/bin/python - <<'PYTHON'
import json
from pathlib import Path

import duckdb

FREE = [{"cost": 0}] * 25_000


def query(what, late, more=""):
    Path("log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*FREE, *late]))
    try:
        return duckdb.sql(f"SELECT {what} FROM read_json('log.jsonl'{more})").fetchall()[0][0]
    except duckdb.Error as error:
        return type(error).__name__


paid = [{"cost": 0.4}] * 1000
seen = {
    "1000 costs of 0.4": query("sum(cost)", paid),
    "the same, all lines sampled": query("round(sum(cost), 6)", paid, ", sample_size=-1"),
    "one cost of 1.5": query("sum(cost)", [{"cost": 1.5}]),
    "a cost that is true": query("sum(cost)", [{"cost": True}]),
    "a cost that is a word": query("sum(cost)", [{"cost": "unknown"}]),
}
query("1", [{"cost": 0, "tokens": 5}])
known = duckdb.sql("SELECT * FROM 'log.jsonl'").columns
for name, found in seen.items():
    print(f"{name:28} {found}")
print(f"{'columns, one begins late':28} {known}")
Path("log.csv").write_text("cost\n" + "0\n" * 25_000 + "0.4\n" * 1000)
as_csv = duckdb.sql("SELECT sum(cost) FROM 'log.csv'").fetchall()[0][0]
print(f"{'1000 costs of 0.4, as CSV':28} {as_csv}")
assert list(seen.values()) == [0, 400, 2, 1, "InvalidInputException"], seen
assert known == ["cost"]
assert as_csv == 0
PYTHON
