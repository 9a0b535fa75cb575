"""Wiring. `tokentee run` without a command: a recording proxy until Ctrl-C."""

import os
import secrets
import socket
import sys
from collections.abc import Container

from mitmproxy import options
from mitmproxy.options import CONF_DIR
from mitmproxy.proxy.mode_specs import ProxyMode

from addon.proxy.recorder import Recorder
from addon.run.call.arguments import LOOPBACK, Address, Call, set_options
from addon.run.command import authorities
from addon.run.leftovers import run_folder
from addon.run.master import RecordingMaster, parsed_options, run_master
from addon.run.ports import Ports
from addon.run.seen import SeenTraffic
from ledger.model.errors import LedgerError, WrongCallError
from ledger.store.engines.urls import default_url

LOOPBACK_NAMES = ("127.", "localhost", "::1", "[::1]")


def run_proxy(call: Call) -> int:
    """Run the proxy, on loopback by default; returns 0 when it has stopped.

    LedgerError if it cannot start.
    """
    authorities.check_folder(set_options(call.options).get("confdir") or CONF_DIR)
    words = words_of(call)
    opts, _ = parsed_options(words)
    close(listen(opts))  # mitmproxy opens its own
    with run_folder() as folder:
        trusted, troubles = authorities.write_trusted(folder.path, os.environ)
        for line in (*warnings(opts), *troubles):
            sys.stderr.write(f"tokentee: {line}\n")
        run_id, seen = secrets.token_hex(4), SeenTraffic()
        recorder = Recorder(tags={"run": run_id})
        stopped = run_master(
            lambda opts: RecordingMaster(opts, words, recorder, first=(Ports(),), last=(seen,)),
            words,
            {"ssl_verify_upstream_trusted_ca": str(trusted)},
        )
    since, unrecorded = None, ""
    if recorder.recording:
        ledger = recorder.recording.ledger
        since, unrecorded = ledger.first_opened_at, ledger.health().unrecorded()
    url = stopped.ledger_url or default_url()
    seen.show_bill(url, run_id, since=since, unrecorded=unrecorded)
    return 0


def words_of(call: Call) -> tuple[str, ...]:
    """The words for mitmproxy's parser. They name where to listen, for modes that do not."""
    host, port = call.listen or (LOOPBACK, None)
    address = ("--listen-host", host, *(("--listen-port", str(port)) if port is not None else ()))
    return (*address, *call.options)


def modes_of(opts: options.Options) -> dict[ProxyMode, Address | None]:
    """Each mode with the address that it listens on. WrongCallError for an invalid mode."""
    found: dict[ProxyMode, Address | None] = {}
    for spec in opts.mode if opts.server else ():
        try:
            mode = ProxyMode.parse(spec)
        except ValueError as error:
            raise WrongCallError(f"--mode {spec}: {error}") from error
        port = mode.listen_port(opts.listen_port)
        found[mode] = None if port is None else (mode.listen_host(opts.listen_host), port)
    return found


def shown_address(address: Address) -> str:
    """HOST:PORT, as a URL has it; `*` stands for all interfaces."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def shared_addresses(words: tuple[str, ...]) -> list[Address]:
    """The addresses that several workers listen on with these words. WrongCallError for an option
    that they cannot support."""
    opts, _ = parsed_options(words)
    saving = ("-w", "--save-stream-file")
    if "save_stream_file" in opts.deferred or any(word.startswith(saving) for word in words):
        raise WrongCallError(
            "save_stream_file (-w) does not go with --workers: all workers would write one file; "
            "--capture FOLDER keeps whole exchanges of all workers"
        )
    found = []
    for mode, address in modes_of(opts).items():
        is_udp = mode.transport_protocol == "udp" or "dns" in mode.full_spec.partition("/")[0]
        if address is None or is_udp or not address[1]:
            raise WrongCallError(
                f"--mode {mode.full_spec} does not go with --workers: they share TCP ports, which "
                "have to be named"
            )
        found.append(address)
    if not found:
        raise WrongCallError("--no-server does not go with --workers: there is nothing to share")
    return found


def listen(
    opts: options.Options, *, held: Container[Address] = ()
) -> dict[Address, list[socket.socket]]:
    """The sockets of each address to listen on; all interfaces are two. LedgerError for an address
    that is taken: mitmproxy's error advises options that do not help. `held`: those that are ours.
    """
    found: dict[Address, list[socket.socket]] = {}
    for mode, address in modes_of(opts).items():
        if address is None or mode.transport_protocol == "udp" or address in held:
            continue
        host, port = address
        try:
            interfaces = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            found[address] = [
                socket.create_server(sockaddr[:2], family=family)
                for family, _, _, _, sockaddr in interfaces
            ]
        except (OSError, OverflowError) as error:
            is_named = opts.has_changed("mode")
            cure = "@HOST:PORT at the end of --mode" if is_named else "--listen HOST:PORT"
            reason = getattr(error, "strerror", None) or str(error)
            reason = reason.partition(" (while")[0]  # Python adds the address
            raise LedgerError(
                f"cannot listen on {shown_address(address)}: {reason}; name another with {cure}"
            ) from None
    return found


def close(listening: dict[Address, list[socket.socket]], *, but: Container[Address] = ()) -> None:
    """Close what is listened on, and forget it."""
    for address in [each for each in listening if each not in but]:
        for each in listening.pop(address):
            each.close()


def warnings(opts: options.Options) -> list[str]:
    """A warning for each address at which other machines can reach the proxy."""
    hosts = {address[0] for address in modes_of(opts).values() if address is not None}
    return [
        f"listening on {host or 'all interfaces'}: everyone who reaches this machine can send "
        "requests through this proxy; --proxyauth USER:PASSWORD asks them for a credential"
        for host in sorted(hosts)
        if not host.startswith(LOOPBACK_NAMES)
    ]
