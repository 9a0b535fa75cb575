"""A program that embeds mitmproxy, loads and removes our script, and compares.

    python embedding.py UPSTREAM LEDGER [ARGV0]

Prints what is another than before the addon came: while it records, with a second script loaded
beside it, and when both are removed. With `ARGV0` the program takes itself for that one.
"""

import asyncio
import json
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mitmproxy import options
from mitmproxy.tools.dump import DumpMaster

from tests.addon.proxy.snapshots import changes, snapshot

SECONDS_MAX = 60
TEE = str(Path(__file__).parents[3] / "addon" / "tee.py")
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


async def main(upstream: str, ledger: str) -> dict[str, Any]:
    opts = options.Options(mode=[f"reverse:{upstream}@127.0.0.1:0"])
    master = DumpMaster(opts, with_termlog=False, with_dumper=False)
    running = asyncio.create_task(master.run())
    server: Any = master.addons.get("proxyserver")
    while not (listening := [each for one in server.servers for each in one.listen_addrs]):
        await asyncio.sleep(0.01)

    async def ask() -> None:
        url = f"http://{listening[0][0]}:{listening[0][1]}/v1/chat/completions"
        request = urllib.request.Request(url, BODY, {"content-type": "application/json"})
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=20).read())

    await ask()  # what the first request imports and makes
    before = snapshot(master)
    manager = type(master.addons)
    strategy = opts.connection_strategy

    def found() -> list[str]:
        changed = changes(before, snapshot(master))
        if type(master.addons) is not manager:
            changed.add("addon manager")
        return sorted(each for each in changed if not each.startswith("hook "))

    opts.update_defer(ledger_url=ledger)
    told: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        other = Path(folder) / "other.py"
        other.write_text("def response(flow):\n    pass\n")
        for name, scripts in (("ours", [TEE]), ("beside", [TEE, str(other)]), ("removed", [])):
            opts.update(scripts=scripts)
            for _ in range(3):
                await ask()
            until = time.monotonic() + SECONDS_MAX / 2
            while not scripts and found() and time.monotonic() < until:
                await asyncio.sleep(0.01)  # what leaves waits for the writer
            told[name] = found()
    told["strategy"] = [strategy, opts.connection_strategy]
    master.shutdown()
    await running
    return told


if __name__ == "__main__":
    if sys.argv[3:]:
        sys.argv[0] = sys.argv[3]
    print(json.dumps(asyncio.run(asyncio.wait_for(main(*sys.argv[1:3]), SECONDS_MAX))))
