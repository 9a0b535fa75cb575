"""Edge. What passed a proxy, counted, to say why nothing was recorded; and the bill at its end."""

from __future__ import annotations

import logging
import os
import sys
from datetime import datetime

from mitmproxy import connection, ctx, http, tls
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addon.attach import attached
from addon.proxy.event_loop import guarded
from addon.proxy.process import is_embedded
from addon.proxy.recorder import Recorder
from ledger.text import first_minute
from ledger.text.hints import as_typed

PLACES_MAX = 1_000
"""Hosts that are counted; further ones are not."""
PASSWORD_ASKED = 407
NOTHING_READ = "no new LLM request was read: the ledger has it already, or it is no LLM call"
"""The bill of `mitmdump -nr`."""


class SeenTraffic:
    """An addon that counts what passes, and what keeps a request from being seen."""

    name = "tokentee-seen"

    def __init__(self) -> None:
        self.seen = first_minute.PassedTraffic()

    @guarded
    def client_connected(self, _: connection.Client) -> None:
        """mitmproxy's hook."""
        self.seen.connections += 1

    @guarded
    def http_connect(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook: a tunnel that its `proxyauth` refuses."""
        if flow.response is not None and flow.response.status_code == PASSWORD_ASKED:
            count(self.seen.without_password, place_of(flow.request.host, flow.request.port))

    @guarded
    def request(self, flow: http.HTTPFlow) -> None:
        """mitmproxy's hook; the preface of HTTP/2 without TLS comes as a request, too."""
        if flow.request.method == "PRI" and flow.request.is_http2:
            refused = self.seen.prior_knowledge
            is_first = not refused
            count(refused, place_of(flow.request.host, flow.request.port))
            if is_first:
                logging.warning("tokentee: %s", first_minute.prior_knowledge_refused(refused))
            return
        is_refused = flow.response is not None and flow.response.status_code == PASSWORD_ASKED
        counts = self.seen.without_password if is_refused else self.seen.requests
        count(counts, place_of(flow.request.pretty_host, flow.request.port))

    @guarded
    def tls_failed_client(self, data: tls.TlsData) -> None:
        """mitmproxy's hook."""
        host, port = (data.context.server.address or ("a host", None))[:2]
        count(self.seen.untrusting, place_of(data.conn.sni or host, port))

    @guarded
    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """mitmproxy's hook."""
        host, port = (data.server.address or ("a host", None))[:2]
        reason = (data.server.error or "").rpartition("] ")[2]  # without [Errno 111]
        count(self.seen.unreachable, f"{place_of(host, port)} ({reason})")

    def failed(self, _: object, failure: Exception) -> None:
        """What is not counted: only the words at the end may be others."""

    def show_bill(
        self,
        ledger_url: str,
        run_id: str,
        word: str = "tag:run",
        *,
        since: datetime | None,
        unrecorded: str,
    ) -> None:
        """Print what was recorded (`bill.show`), or why nothing was."""
        try:
            from addon.run import bill
        except ImportError:  # another version lies in the place of this one by now
            sys.stderr.write(
                "tokentee: no bill, as the installed files were replaced since the start: "
                f"tokentee report --only {word}={run_id}\n"
            )
            return
        if not bill.show(ledger_url, run_id, word, since=since, unrecorded=unrecorded):
            for line in first_minute.nothing_recorded(self.seen, is_command=False):
                sys.stderr.write(f"tokentee: {as_typed(line, os.environ)}\n")


class ScriptBill(SeenTraffic):
    """The same beside the recorder of a script: prints the bill in mitmdump and mitmweb."""

    name = "tokentee-bill"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def done(self) -> None:
        """mitmproxy's hook, at its end and when the script is taken out; after the recorder's."""
        found, options = self._recorder.recording, ctx.options
        # Only a master that writes to a terminal has the option.
        is_read = getattr(options, "termlog_verbosity", "error") != "error"
        if not found or is_embedded() or not (is_read and ctx.master.should_exit.is_set()):
            return
        if any(make(found.settings.of_parts) for make in attached("log format")):
            return  # no text among lines of another format
        url, node = found.settings.ledger_url, found.rules.node
        since, unrecorded = found.ledger.first_opened_at, found.ledger.health().unrecorded()
        if options.server:
            self.show_bill(url, node, "node", since=since, unrecorded=unrecorded)
        elif options.rfile:
            from addon.run import bill

            bill.show(url, node, "node", since=since, unrecorded=unrecorded, nothing=NOTHING_READ)


def place_of(host: str, port: int | None) -> str:
    """HOST:PORT, without the port of HTTPS."""
    return host if port in (443, None) else f"{host}:{port}"


def count(counts: dict[str, int], place: str) -> None:
    """Count a place, within the bound."""
    if place in counts or len(counts) < PLACES_MAX:
        counts[place] = counts.get(place, 0) + 1
