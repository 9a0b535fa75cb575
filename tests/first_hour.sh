# The first hour of a user, from an empty home: what is typed, and what is printed. The installation
# stands before it (`tests/test_wheel.py`). UPSTREAM: a server of OpenAI's wire format; PYTHON: one
# with OpenAI's SDK.
set -euo pipefail
play() { echo "\$ $*"; "$@" 2>&1; echo; }

cat >"$HOME/agent.py" <<'AGENT'
from openai import OpenAI
said = [{"role": "user", "content": "hello"}]
stream = OpenAI(api_key="sk-first-hour").chat.completions.create(
    model="gpt-4o", messages=said, stream=True
)
print(sum(1 for _ in stream), "chunks")
AGENT

echo "# A command"
host="${UPSTREAM#http://}"
OPENAI_BASE_URL="$UPSTREAM/v1" play tokentee run --set "tee_hosts=$host=openai" -- "$PYTHON" "$HOME/agent.py"

echo "# A proxy in front of a provider"
PYTHONUNBUFFERED=1 mitmdump -s "$(tokentee path)" --mode "reverse:$UPSTREAM@127.0.0.1:0" \
    --set "tee_hosts=$host=openai" >"$HOME/proxy" 2>&1 &
until grep -qs "clients set" "$HOME/proxy"; do kill -0 $!; sleep 0.1; done
url="$(grep -o "http://127.0.0.1:[0-9]*" <<<"$(grep "clients set" "$HOME/proxy")" | head -1)"
OPENAI_BASE_URL="$url/v1" play "$PYTHON" "$HOME/agent.py"
kill -INT $!
wait $!
cat "$HOME/proxy"

echo "# What was recorded"
play tokentee report
play tokentee requests
tokentee serve --port 0 >"$HOME/address" 2>/dev/null &
until [ -s "$HOME/address" ]; do kill -0 $!; sleep 0.1; done
"$PYTHON" -c 'import sys, urllib.request as r
page = r.build_opener(r.HTTPCookieProcessor()).open(sys.argv[1].strip()).read().decode()
print("the page:", page.partition("<title>")[2].partition("</title>")[0])' "$(cat "$HOME/address")"
kill $!

echo "# A second machine"
printf '#!/bin/sh\nexport HOME="%s/second"\nfor last; do :; done\neval "$last"\n' "$HOME" >"$HOME/.local/bin/ssh"
chmod +x "$HOME/.local/bin/ssh"
mkdir "$HOME/second"
play tokentee sync "sqlite:///$HOME/.local/share/tokentee/ledger.sqlite3" ssh://me@laptop
HOME="$HOME/second" play tokentee report
