"""Edge. What passed a proxy, counted, to say why nothing was recorded; and the bill at its end."""

import os
import sys
from collections import Counter

from mitmproxy import ctx, http, tls

from addon.proxy.event_loop import guarded
from addon.proxy.recorder import Recorder
from ledger.text import first_minute
from ledger.text.hints import as_typed

PLACES_MAX = 1_000
"""Hosts that are counted; further ones are not."""


class SeenTraffic:
    """An addon that counts requests, and connections whose client refused our certificate."""

    name = "tokentee-seen"

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.untrusting: Counter[str] = Counter()

    @guarded
    def request(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook."""
        count(self.requests, flow.request.pretty_host, flow.request.port)

    @guarded
    def tls_failed_client(self, data: tls.TlsData) -> None:
        """mitmproxy's hook."""
        host, port = data.context.server.address or ("a host", None)
        count(self.untrusting, data.conn.sni or host, port)

    def failed(self, _: object, failure: Exception) -> None:
        """A request that is not counted: only the words at the end may be others."""

    def show_bill(self, ledger_url: str, run_id: str, word: str = "tag:run") -> None:
        """Print what was recorded (`bill.show`), or why nothing was."""
        from addon.run import bill

        if not bill.show(ledger_url, run_id, word):
            for line in first_minute.nothing_recorded(
                requests=self.requests,
                untrusting=self.untrusting,
                unread={},
                local={},
                is_command=False,
            ):
                sys.stderr.write(f"tokentee: {as_typed(line, os.environ)}\n")


class ScriptBill(SeenTraffic):
    """The same beside the recorder of a script: prints the bill where the process is ours."""

    name = "tokentee-bill"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def done(self) -> None:
        """mitmproxy's hook, at its end and when the script is taken out; after the recorder's."""
        found, options = self._recorder.recording, ctx.options
        # Only a master that writes to a terminal has the option.
        is_read = options.server and getattr(options, "termlog_verbosity", "error") != "error"
        if not (found and found.process.is_ours and is_read and ctx.master.should_exit.is_set()):
            return
        if not found.settings.log_as_json:
            self.show_bill(found.settings.ledger_url, found.rules.node, "node")


def count(counts: Counter[str], host: str, port: int | None) -> None:
    """Count HOST:PORT, without the port of HTTPS."""
    place = host if port in (443, None) else f"{host}:{port}"
    if place in counts or len(counts) < PLACES_MAX:
        counts[place] += 1
