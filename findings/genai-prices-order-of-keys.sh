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
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from genai_prices.update_prices import UpdatePrices


class Prices(BaseHTTPRequestHandler):
    clause: dict = {}

    def do_GET(self):
        model = {"id": "m", "match": self.clause, "prices": {"input_mtok": 1}}
        body = json.dumps([{"id": "p", "name": "p", "api_pattern": "p", "models": [model]}]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Prices)
threading.Thread(target=server.serve_forever, daemon=True).start()
updater = UpdatePrices(url=f"http://127.0.0.1:{server.server_port}/prices.json")


def read(clause):
    Prices.clause = clause
    return updater.fetch().providers[0].models[0]


written = '{"starts_with": "gpt-", "ends_with": "-mini"}'
names = ["gpt-a-mini", "gpt-a", "other-mini"]
seen = {}
for form, text in {
    "as written": written,
    "keys sorted": json.dumps(json.loads(written), sort_keys=True),
    "in words": '{"and": [{"starts_with": "gpt-"}, {"ends_with": "-mini"}]}',
}.items():
    model = read(json.loads(text))
    seen[form] = [name for name in names if model.is_match(name)]
    print(f"{form:12} {text}\n{'':12} matches {seen[form]}")
try:
    read({})
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
