"""Wiring. `tokentee run` without a command: a recording proxy until Ctrl-C."""

import os
import sys
import tempfile
from pathlib import Path

from mitmproxy import options

from addon.run import authorities, master
from addon.run.arguments import Call, open_addresses

LOOPBACK = "127.0.0.1"


def run_proxy(call: Call) -> int:
    """Run it, on loopback unless the options say otherwise; 0 when it has stopped."""
    for host in open_addresses(call):
        _say(
            f"listening on {host or 'all interfaces'}: everyone who reaches this machine can send "
            "requests through this proxy; --proxyauth USER:PASSWORD asks them for a credential"
        )
    host, port = call.listen or (LOOPBACK, None)
    words = ["--listen-host", host, *(["--listen-port", str(port)] if port is not None else [])]
    trust = authorities.read_trust(os.environ)
    for trouble in trust.troubles:
        _say(trouble)
    with tempfile.TemporaryDirectory(prefix="tokentee-") as folder:
        trusted = authorities.write(Path(folder), [trust.everything])

        def make(opts: options.Options) -> master.RecordingMaster:
            opts.update(ssl_verify_upstream_trusted_ca=str(trusted))
            return master.RecordingMaster(
                opts,
                with_proxyauth=call.asks_for_proxyauth or master.wants_proxyauth(opts.confdir),
                named=call.set_names,
            )

        master.run_master(make, [*words, *call.options], call.filters)
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"tokentee: {text}\n")
