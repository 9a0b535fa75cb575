"""Starts a gateway, sends it some requests, prints whether its answers have upstream's text, and
ends it: `gateway.py PORT PATH BODIES COMMAND ...`. Needs nothing but the standard library.

What the gateway asks its provider is what is recorded.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

START_SECONDS_MAX = 120
HEADERS = {
    "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    "content-type": "application/json",
    "x-portkey-provider": "openai",
}


def main(port: int, path: str, bodies: list[object], command: list[str]) -> None:
    gateway = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)
    try:
        _wait_for(port, gateway)
        address = f"http://127.0.0.1:{port}{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for body in bodies:
            request = urllib.request.Request(address, json.dumps(body).encode(), HEADERS)
            with opener.open(request, timeout=60) as answer:
                print("Hello" in answer.read().decode())
    finally:
        os.killpg(gateway.pid, signal.SIGTERM)
        gateway.wait(20)


def _wait_for(port: int, gateway: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            time.sleep(2)  # some listen before they have read what they route
            return
    raise SystemExit(f"{gateway.args!r} does not listen on port {port}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:])
