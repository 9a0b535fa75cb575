#!/usr/bin/env bash
# Guess: in a price list for genai-prices a match clause with two conditions, `starts_with` and
#   `ends_with`, means both, or is refused; an empty clause is refused with the error for bad lists.
# Seen: the first key in the order of the file is the clause, the other is dropped without a word. The
#   same JSON object with its keys the other way round (which JSON calls equal) matches other models,
#   so that a formatter that sorts keys changes prices. An empty clause escapes as StopIteration,
#   which is no ValueError; within a generator it turns into a RuntimeError.
# Why it matters to a meter: a list of one's own, kept in a file that tools rewrite, prices one model at
#   another's rate, and the code that catches errors of the list does not catch this one.
# Versions: genai-prices 0.2.3; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check genai-prices==0.2.3 pydantic==2.14.4
"$folder/venv/bin/python" - <<'PYTHON'
import json

import pydantic
from genai_prices.types import MatchLogic

clause = pydantic.TypeAdapter(MatchLogic)
written = '{"starts_with": "gpt-", "ends_with": "-mini"}'
models = ["gpt-a-mini", "gpt-a", "other-mini"]
seen = {}
for name, text in {
    "as written": written,
    "keys sorted": json.dumps(json.loads(written), sort_keys=True),
    "in words": '{"and": [{"starts_with": "gpt-"}, {"ends_with": "-mini"}]}',
}.items():
    match = clause.validate_python(json.loads(text))
    seen[name] = [model for model in models if match.is_match(model)]
    print(f"{name:12} {text}\n{'':12} matches {seen[name]}")
try:
    clause.validate_python({})
except BaseException as error:
    empty = type(error)
print(f"{'empty':12} raises {empty.__name__}")
assert seen == {
    "as written": ["gpt-a-mini", "gpt-a"],
    "keys sorted": ["gpt-a-mini", "other-mini"],
    "in words": ["gpt-a-mini"],
}
assert empty is StopIteration
PYTHON
