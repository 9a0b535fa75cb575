"""The command behind a proxy of `test_run`: one streamed call, one plain request; prints what it got."""

import json
import sys
import urllib.error
import urllib.request

found = []
for url in sys.argv[2:]:
    request = urllib.request.Request(
        url, sys.argv[1].encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found.append([answer.status, answer.read().decode()])
    except urllib.error.HTTPError as error:
        found.append([error.code, error.read().decode()])
print(json.dumps(found))
