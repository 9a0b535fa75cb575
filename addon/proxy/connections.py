"""Edge. When mitmproxy connects to an upstream in reverse mode, and how that connection ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mitmproxy import addonmanager, http, optmanager
from mitmproxy.options import Options

logger = logging.getLogger(__name__)

_OPTION = "connection_strategy"


def connect_per_request(options: Options) -> tuple[str, Callable[[], None]]:
    """Connect upstream per request, unless the operator chose otherwise.

    mitmproxy's default `eager` connects before any request is read, and closes the client's
    connection when upstream refuses: nothing could be recorded of it. Returns words for the start
    line that say what was changed (empty: nothing), and what changes it back.
    """
    modes = options.mode
    if not modes or not all(mode.startswith("reverse:") for mode in modes):
        return "", lambda: None
    if options.connection_strategy == "lazy":
        return "", lambda: None
    # Whether the option was given, even if as its default. On any doubt it was.
    given = getattr(options, "_options", {}).get(_OPTION)
    unset = getattr(optmanager, "unset", None)
    if given is None or unset is None or given.value is not unset:
        logger.warning(
            "tokentee: %s=%s: a request is not recorded if upstream refuses the connection",
            _OPTION,
            options.connection_strategy,
        )
        return "", lambda: None
    options.update(connection_strategy="lazy")

    def restore() -> None:
        if options.connection_strategy == "lazy":
            options.update(connection_strategy="eager")
            # Not set by anybody again, or the next start takes it for the operator's choice.
            option = getattr(options, "_options", {}).get(_OPTION)
            if option is not None:
                option.reset()

    return f"{_OPTION} lazy (default: eager)", restore


def was_reset(addons: addonmanager.AddonManager, flow: http.HTTPFlow) -> bool:
    """Whether a flow's upstream connection broke, where mitmproxy takes that for its end.

    To be asked when the end of the body has come and nothing was closed yet. mitmproxy reads a
    connection to its end and forgets the error that was the end; the reader still has it. Without
    a reader of this kind the answer is no, as in mitmproxy.
    """
    connections = getattr(addons.get("proxyserver"), "connections", {})
    transports = getattr(connections.get(flow.client_conn.id), "transports", {})
    reader = getattr(transports.get(flow.server_conn), "reader", None)
    return isinstance(reader, asyncio.StreamReader) and isinstance(reader.exception(), OSError)
