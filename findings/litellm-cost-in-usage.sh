#!/usr/bin/env bash
# Guess: for a model of its list, called as `openai/...` at a server of one's own, LiteLLM takes the
#   price of the list; a `cost` in the usage is OpenRouter's matter, whose unit is known.
# Seen: any server's `usage.cost` becomes the cost of the call, in dollars, before the list, whatever
#   the provider's name in front of the model: 9 credits of a gateway are $9 where the list says
#   $0.0001. A currency beside it is not looked at.
# Why it matters to a meter: `cost` has no unit on the wire: gateways write dollars, yuan, credits. A
#   total by LiteLLM behind such a gateway mixes them, and no field says which of two sources it was.
# Versions: litellm 1.110.2; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm


class Provider(BaseHTTPRequestHandler):
    more: dict = {}

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **self.more}
        message = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5.4"}
        body = json.dumps({**head, "choices": [message], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}"
seen = []
for more in ({}, {"cost": 9}, {"cost": 9, "currency": "CNY"}, {"credits": 9}):
    Provider.more = more
    answer = litellm.completion(
        model="openai/gpt-5.4", messages=[{"role": "user", "content": "?"}], api_base=base, api_key="none"
    )
    seen.append(answer._hidden_params["response_cost"])
    print(f"{more!s:36} ${seen[-1]}")
assert [round(each, 6) for each in seen] == [0.0001, 9, 9, 0.0001], seen
PYTHON
