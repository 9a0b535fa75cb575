"""Wiring. `tokentee run` without a command: a recording proxy until Ctrl-C."""

import os
import sys
import tempfile
from pathlib import Path

from mitmproxy import options

from addon.run import master
from addon.run.call.arguments import Call, open_addresses
from addon.run.command import authorities

LOOPBACK = "127.0.0.1"


def run_proxy(call: Call) -> int:
    """Run the proxy, on loopback by default; returns 0 when it has stopped."""
    with tempfile.TemporaryDirectory(prefix="tokentee-") as folder:
        trusted, troubles = authorities.write_trusted(Path(folder), os.environ)
        for line in (*warnings(call), *troubles):
            sys.stderr.write(f"tokentee: {line}\n")

        def make(opts: options.Options) -> master.RecordingMaster:
            opts.update(ssl_verify_upstream_trusted_ca=str(trusted))
            return master.RecordingMaster(
                opts,
                with_proxyauth=call.asks_for_proxyauth or master.wants_proxyauth(opts.confdir),
                named=call.set_names,
            )

        master.run_master(make, [*listen_words(call), *call.options], call.filters)
    return 0


def listen_words(call: Call) -> list[str]:
    """The options for the listening address of a proxy without modes of its own."""
    host, port = call.listen or (LOOPBACK, None)
    return ["--listen-host", host, *(["--listen-port", str(port)] if port is not None else [])]


def warnings(call: Call) -> list[str]:
    """A warning for each address at which other machines can reach the proxy."""
    return [
        f"listening on {host or 'all interfaces'}: everyone who reaches this machine can send "
        "requests through this proxy; --proxyauth USER:PASSWORD asks them for a credential"
        for host in open_addresses(call)
    ]
