"""Wiring. Makes the start parameters of all workers from a call of `tokentee run --workers`.

mitmproxy's own parser reads the words and its configuration file, so that the supervisor listens at
the addresses where each worker would.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode

from addon.run import standalone
from addon.run.call.arguments import Address, Call
from addon.run.command import authorities
from addon.run.master import parsed_options
from ledger.model.errors import WrongCallError

TCP_SCHEMES = ("http", "https", "tls", "tcp")
"""Schemes of reverse proxies whose connections several processes can accept."""
SAVING = ("-w", "--save-stream-file")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The parameters that are the same for all workers."""

    words: tuple[str, ...]
    addresses: tuple[Address, ...]
    trusted: Path
    notes: tuple[str, ...]
    """Lines for the log."""
    quiet: bool


def plan_of(call: Call, folder: Path) -> WorkerPlan:
    """The plan. `folder`: for the file of authorities. Raises WrongCallError for an option that
    several workers cannot support, or that mitmproxy refuses."""
    words = standalone.words_of(call)
    opts, quiet = parsed_options(words)
    if "save_stream_file" in opts.deferred or any(word.startswith(SAVING) for word in words):
        raise WrongCallError(
            "save_stream_file (-w) does not go with --workers: all workers would write one file; "
            "--set tee_capture=FOLDER keeps whole exchanges of all workers"
        )
    if not opts.server:
        raise WrongCallError("--no-server does not go with --workers: there is nothing to share")
    addresses = []
    for mode, address in standalone.modes_of(opts).items():
        if address is None or not _accepts_tcp(mode):
            raise WrongCallError(
                f"--mode {mode.full_spec} does not go with --workers: only regular, reverse, "
                "upstream, socks5 and transparent proxies over TCP can share their address"
            )
        addresses.append(address)
    trusted, troubles = authorities.write_trusted(folder, os.environ)
    return WorkerPlan(
        words=words,
        addresses=tuple(addresses),
        trusted=trusted,
        notes=(*standalone.warnings(opts), *troubles),
        quiet=quiet,
    )


def _accepts_tcp(mode: ProxyMode) -> bool:
    if isinstance(mode, ReverseMode):
        return mode.scheme in TCP_SCHEMES
    return mode.transport_protocol == "tcp"
