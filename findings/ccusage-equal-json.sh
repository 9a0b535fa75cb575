#!/usr/bin/env bash
# Guess: ccusage reads a line of Claude Code's log by what its JSON says: blanks between tokens mean
#   nothing, and null for a field that may be absent is as if it were absent.
# Seen: a blank behind each colon (as Python's `json.dumps` writes by default) and the day is empty, no
#   word of it, exit 0; a blank behind each comma does no harm. null for `requestId`, `version`, `cwd`,
#   `sessionId`, `cache_read_input_tokens` or `speed` drops the line likewise; null for
#   `cache_creation`, `server_tool_use` or `service_tier` does not. Without `requestId` it is read.
# Why it matters to a meter: a log that a tool has copied, merged or made anonymous counts as nothing,
#   and an empty day looks like a free one. Compare counts of lines before figures.
# Versions: ccusage 20.0.24 with its native reader for linux-x64; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . ccusage@20.0.24 @ccusage/ccusage-linux-x64@20.0.24
python3 - <<'PYTHON'
import json
import os
import subprocess
from pathlib import Path

SESSION = "11111111-1111-4111-8111-111111111111"
log = Path("home/.claude/projects/-x") / f"{SESSION}.jsonl"
log.parent.mkdir(parents=True)
ABSENT = object()


def tokens(usage=None, separators=(",", ":"), **changed):
    stated = {"input_tokens": 1000, "output_tokens": 500, "cache_read_input_tokens": 0,
              "cache_creation_input_tokens": 0, **(usage or {})}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
               "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "usage": stated}
    line = {"type": "assistant", "sessionId": SESSION, "uuid": "u", "timestamp": "2026-11-20T10:00:00.000Z",
            "version": "2.1.332", "cwd": "/x", "requestId": "req_1", "message": message, **changed}
    line = {key: value for key, value in line.items() if value is not ABSENT}
    log.write_text(json.dumps(line, separators=separators) + "\n")
    done = subprocess.run(
        ["node_modules/.bin/ccusage", "claude", "daily", "--json", "--offline"],
        env={**os.environ, "HOME": str(Path("home").resolve()), "TZ": "UTC"},
        capture_output=True, text=True, check=True,
    )
    return json.loads(done.stdout)["totals"]["totalTokens"]


seen = {
    "as Claude Code writes it": tokens(),
    "blank behind commas": tokens(separators=(", ", ":")),
    "no requestId": tokens(requestId=ABSENT),
    "null in cache_creation": tokens({"cache_creation": None}),
    "null in server_tool_use": tokens({"server_tool_use": None}),
    "blank behind colons": tokens(separators=(",", ": ")),
    "null in requestId": tokens(requestId=None),
    "null in version": tokens(version=None),
    "null in cwd": tokens(cwd=None),
    "null in sessionId": tokens(sessionId=None),
    "null in cache_read": tokens({"cache_read_input_tokens": None}),
    "null in speed": tokens({"speed": None}),
}
for name, found in seen.items():
    print(f"{name:26} {found} of 1500 tokens")
assert list(seen.values()) == [1500] * 5 + [0] * 7
PYTHON
