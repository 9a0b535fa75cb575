"""Compares the process with what it was when this script was loaded, before any other.

`GET /probe` answers with the names of what is another now.
"""

import json

from mitmproxy import ctx, http

from tests.addon.proxy.snapshots import changes, snapshot


class Probe:
    name = "probe"

    def load(self, loader: object) -> None:
        self.before = snapshot()
        self.manager = type(ctx.master.addons)

    def request(self, flow: http.HTTPFlow) -> None:
        if flow.request.path != "/probe":
            return
        changed = sorted(changes(self.before, snapshot()))
        if type(ctx.master.addons) is not self.manager:
            changed.append("addon manager")
        options = {name: getattr(ctx.options, name) for name in ("connection_strategy",)}
        chain = [getattr(addon, "name", type(addon).__name__) for addon in ctx.master.addons.chain]
        found = {"changed": changed, "options": options, "chain": chain}
        flow.response = http.Response.make(200, json.dumps(found))


addons = [Probe()]
