#!/usr/bin/env bash
# Guess: `codeburn models --format json`, without `--min-cost`, has a row for every model of the period;
#   the option is off until it is given.
# Seen: models below one cent are left out, in JSON and CSV too, with no row for the rest and no word of
#   it: a million tokens of a model without a price (a local one, a new one) are not there at all, while
#   10 000 tokens of a priced one are. `--min-cost 0` shows them.
# Why it matters to a meter: a file for machines that drops what costs nothing cannot be added up by
#   tokens, and "no price known" reads as "not used".
# Versions: codeburn 0.9.15, on Node 22.23.3 from npm; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . codeburn@0.9.15 node@22.23.3 2>/dev/null
[ -x node_modules/node/bin/node ] || node node_modules/node/installArchSpecificPackage.js
python3 - <<'PYTHON'
import csv
import io
import json
import os
import subprocess
from pathlib import Path

SESSION = "11111111-1111-4111-8111-111111111111"
log = Path("home/.claude/projects/-x") / f"{SESSION}.jsonl"
log.parent.mkdir(parents=True)


def line(number, model, tokens):
    usage = {"input_tokens": tokens, "output_tokens": 1, "cache_read_input_tokens": 0,
             "cache_creation_input_tokens": 0}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model,
               "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "usage": usage}
    return {"type": "assistant", "sessionId": SESSION, "uuid": f"u{number}", "version": "2.1.332", "cwd": "/x",
            "timestamp": "2026-11-20T10:00:00.000Z", "requestId": f"req_{number}", "message": message}


lines = [line(1, "claude-sonnet-4-6", 10_000), line(2, "claude-haiku-4-5", 5_000), line(3, "house-model", 10**6)]
log.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines))


def codeburn(kind, *more):
    done = subprocess.run(
        ["node_modules/node/bin/node", "node_modules/codeburn/dist/cli.js", "models", "--format", kind,
         "--from", "2026-11-01", "--to", "2026-11-30", *more],
        env={**os.environ, "HOME": str(Path("home").resolve()), "TZ": "UTC"},
        capture_output=True, text=True, check=True,
    )
    return done.stdout


def inputs(*more):
    return sorted(row["inputTokens"] for row in json.loads(codeburn("json", *more)))


seen = {"as it is": inputs(), "--min-cost 0": inputs("--min-cost", "0")}
for name, found in seen.items():
    print(f"{name:14} input tokens by model: {found}")
rows = list(csv.reader(io.StringIO(codeburn("csv"))))
print(f"rows of the CSV: {len(rows) - 1}")
assert seen == {"as it is": [10_000], "--min-cost 0": [5_000, 10_000, 10**6]}, seen
PYTHON
