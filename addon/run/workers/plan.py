"""Wiring. Makes the start parameters of all workers from a call of `tokentee run --workers`.

mitmproxy's own parser reads the words and its configuration file, so that the supervisor listens at
the addresses where each worker would.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mitmproxy import exceptions, options, optmanager
from mitmproxy.proxy import mode_specs
from mitmproxy.tools import cmdline, main

from addon.run import alone, master
from addon.run.call.arguments import Call
from addon.run.command import authorities
from addon.run.workers.listeners import Address
from ledger.model.errors import WrongCallError

TCP_SCHEMES = ("http", "https", "tls", "tcp")
"""Schemes of reverse proxies whose connections several processes can accept."""
SAVING = ("-w", "--save-stream-file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters that are the same for all workers."""

    words: tuple[str, ...]
    set_names: tuple[str, ...]
    addresses: tuple[Address, ...]
    with_proxyauth: bool
    trusted: Path
    notes: tuple[str, ...]
    """Lines for the log."""
    quiet: bool


def plan_of(call: Call, folder: Path) -> Plan:
    """The plan. `folder`: for the file of authorities. Raises WrongCallError for an option that
    several workers cannot support, or that mitmproxy refuses."""
    words = (*alone.listen_words(call), *call.options)
    opts, quiet = _parsed(words)
    trusted, troubles = authorities.write_trusted(folder, os.environ)
    return Plan(
        words=(*words, *call.filters),
        set_names=tuple(sorted(call.set_names)),
        addresses=tuple(_addresses(opts)),
        with_proxyauth=call.asks_for_proxyauth or master.wants_proxyauth(opts.confdir),
        trusted=trusted,
        notes=(*alone.warnings(call), *troubles),
        quiet=quiet,
    )


def _parsed(words: Sequence[str]) -> tuple[options.Options, bool]:
    """A worker's options of mitmproxy, without those of its addons; and whether only errors are
    logged."""
    opts = options.Options()
    parser = cmdline.mitmdump(opts)
    # The options of its addons, such as --proxyauth, are unknown here; the workers parse them.
    arguments, _ = parser.parse_known_args(list(words))
    try:
        opts.set(*arguments.setoptions, defer=True)
        confdir = Path(opts.confdir)
        optmanager.load_paths(opts, confdir / "config.yaml", confdir / "config.yml")
        main.process_options(parser, opts, arguments)
    except exceptions.OptionsError as error:
        raise WrongCallError(str(error)) from error
    if "save_stream_file" in opts.deferred or any(word.startswith(SAVING) for word in words):
        raise WrongCallError(
            "save_stream_file (-w) does not go with --workers: all workers would write one file; "
            "--set tee_capture=FOLDER keeps whole exchanges of all workers"
        )
    return opts, bool(arguments.quiet)


def _addresses(opts: options.Options) -> list[Address]:
    found = []
    if not opts.server:
        raise WrongCallError("--no-server does not go with --workers: there is nothing to share")
    for spec in opts.mode:
        try:
            mode = mode_specs.ProxyMode.parse(spec)
        except ValueError as error:
            raise WrongCallError(f"--mode {spec}: {error}") from error
        port = mode.listen_port(opts.listen_port)
        if not _accepts_tcp(mode) or port is None:
            raise WrongCallError(
                f"--mode {spec} does not go with --workers: only regular, reverse, upstream, "
                "socks5 and transparent proxies over TCP can share their address"
            )
        found.append((mode.listen_host(opts.listen_host), port))
    return found


def _accepts_tcp(mode: mode_specs.ProxyMode) -> bool:
    if isinstance(mode, mode_specs.ReverseMode):
        return mode.scheme in TCP_SCHEMES
    return mode.transport_protocol == "tcp"
