"""Edge. The lines of a proxy that has started: what clients have to set, and what to type next."""

import logging
import os

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.master import Master

from ledger.settings.small_files import expanded
from ledger.text import first_minute
from ledger.text.hints import as_typed

logger = logging.getLogger(__name__)


def say_what_is_next(master: Master) -> None:
    """Log the first minute's lines for the servers of this process; none without a server."""
    server = master.addons.get("proxyserver")
    options = master.options
    if not isinstance(server, Proxyserver):
        return
    listeners = [
        (each.mode.full_spec, str(address[0]), int(address[1]))
        for each in server.servers
        for address in each.listen_addrs
    ]
    authority = str(expanded(options.confdir) / "mitmproxy-ca-cert.pem")
    asks_password = bool(getattr(options, "proxyauth", None))
    for line in first_minute.lines_at_start(
        listeners, authority=authority, asks_password=asks_password
    ):
        logger.info("tokentee: %s", as_typed(line, os.environ))
    if getattr(options, "save_stream_file", None) and not options.store_streamed_bodies:
        logger.warning("tokentee: %s", first_minute.SAVED_WITHOUT_BODIES)
