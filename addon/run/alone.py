"""Wiring. `tokentee run` without a command: a recording proxy until Ctrl-C."""

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from mitmproxy import options
from mitmproxy.options import CONF_DIR
from mitmproxy.proxy.mode_specs import ProxyMode

from addon.run import master
from addon.run.call.arguments import Call, open_addresses
from addon.run.command import authorities
from ledger.model.errors import LedgerError

LOOPBACK = "127.0.0.1"


def run_proxy(call: Call) -> int:
    """Run the proxy, on loopback by default; returns 0 when it has stopped.

    LedgerError if it cannot start.
    """
    authorities.check_folder(call.value_of("confdir") or CONF_DIR)
    words = [*listen_words(call), *call.options]
    check_addresses(words)
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

        master.run_master(make, words, call.filters)
    return 0


def listen_words(call: Call) -> list[str]:
    """The options for the listening address of a proxy without modes of its own."""
    host, port = call.listen or (LOOPBACK, None)
    return ["--listen-host", host, *(["--listen-port", str(port)] if port is not None else [])]


def check_addresses(words: Sequence[str]) -> None:
    """LedgerError for an address that is taken: mitmproxy's error advises options that do not
    help. An invalid mode is left to mitmproxy."""
    values = {"--listen-host": LOOPBACK, "--listen-port": "8080"}
    modes = []
    for word, following in pairwise(words):
        if word in ("--mode", "-m"):
            modes.append(following)
        elif word in ("--listen-port", "-p", "--listen-host"):
            values["--listen-port" if word == "-p" else word] = following
    for spec in modes or ["regular"]:
        with contextlib.suppress(ValueError):
            mode = ProxyMode.parse(spec)
            port = mode.listen_port(int(values["--listen-port"]))
            if port is None or mode.transport_protocol == "udp":
                continue
            host = mode.listen_host(values["--listen-host"])
            option = f"--mode {spec.partition('@')[0]}@HOST:PORT" if modes else "--listen HOST:PORT"
            _check_address(host, port, option)


def _check_address(host: str, port: int, option: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LedgerError(
                f"cannot listen on {host or '*'}:{port}: {reason}; name another with {option}"
            ) from None


def warnings(call: Call) -> list[str]:
    """A warning for each address at which other machines can reach the proxy."""
    return [
        f"listening on {host or 'all interfaces'}: everyone who reaches this machine can send "
        "requests through this proxy; --proxyauth USER:PASSWORD asks them for a credential"
        for host in open_addresses(call)
    ]
