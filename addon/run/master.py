"""Edge. `tokentee run`: the recorder in a mitmproxy of its own, alone or around a command.

The master has only the addons that a recording proxy needs. Every hook of every exchange walks
every addon, and without the two dozen that serve mitmproxy's other uses the same machine passes
1.3 to 1.5 times as many requests (MITMPROXY.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import certifi
from mitmproxy import ctx, master, options
from mitmproxy.addons import (
    block,
    core,
    disable_h2c,
    errorcheck,
    next_layer,
    proxyauth,
    proxyserver,
    save,
    script,
    termlog,
    tlsconfig,
    upstream_auth,
)
from mitmproxy.tools import cmdline, main

from addon.proxy.recorder import Recorder
from addon.run import environment as child_environment
from addon.run.summary import show_summary
from ledger.store.db import default_url

logger = logging.getLogger(__name__)


class RecordingMaster(master.Master):
    """mitmdump without what a recording proxy does not use. Its log goes to stderr."""

    run_tag: Mapping[str, str] = {}

    def __init__(self, opts: options.Options) -> None:
        super().__init__(opts, with_termlog=False)
        self._termlog_addon = termlog.TermLog(sys.stderr)
        self.addons.add(
            self._termlog_addon,
            core.Core(),
            block.Block(),
            disable_h2c.DisableH2C(),
            proxyauth.ProxyAuth(),
            proxyserver.Proxyserver(),
            script.ScriptLoader(),
            next_layer.NextLayer(),
            save.Save(),
            tlsconfig.TlsConfig(),
            upstream_auth.UpstreamAuth(),
            Recorder(tags=self.run_tag),
            errorcheck.ErrorCheck(),
        )


class Around:
    """Runs a command while the proxy is up, and stops the proxy when the command ends."""

    name = "tokentee-command"

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._task: asyncio.Task[None] | None = None
        self.exit_code: int | None = None

    def running(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="tokentee-") as folder:
                environment = self._environment(Path(folder))
                self.exit_code = await _run_command(self._command, environment)
        finally:
            ctx.master.shutdown()

    def _environment(self, folder: Path) -> dict[str, str]:
        ports = {}
        proxy_port = 0
        servers = ctx.master.addons.get("proxyserver").servers
        for server in servers:
            port = server.listen_addrs[0][1]
            if server.mode.full_spec.startswith("reverse:"):
                ports[server.mode.full_spec.removeprefix("reverse:").rpartition("@")[0]] = port
            else:
                proxy_port = port
        proxy_ca = Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem"
        trusted = Path(os.environ.get("SSL_CERT_FILE") or certifi.where())
        bundle = folder / "ca-bundle.pem"
        bundle.write_bytes(trusted.read_bytes() + b"\n" + proxy_ca.read_bytes())
        return child_environment.environment_for(
            os.environ,
            reverse_ports=ports,
            proxy_port=proxy_port,
            ca_bundle=str(bundle),
            proxy_ca=str(proxy_ca),
        )


def run_proxy(arguments: Sequence[str]) -> None:
    """mitmdump's command line, our master. Returns when the proxy has stopped."""
    main.run(RecordingMaster, cmdline.mitmdump, list(arguments), _filters)


def run_around(arguments: Sequence[str], command: Sequence[str]) -> int:
    """As `run_proxy`, on loopback, for as long as the command runs; the command's exit code.

    127 if the command cannot be started, 128 + N if signal N ended it, as a shell reports. What
    it used is printed to stderr.
    """
    origins = sorted(
        {
            child_environment.origin_of(url)
            for url in child_environment.base_urls(os.environ).values()
        }
    )
    around = Around(command)
    run_id = secrets.token_hex(4)

    class Master(RecordingMaster):
        run_tag: Mapping[str, str] = {"run": run_id}

        def __init__(self, opts: options.Options) -> None:
            super().__init__(opts)
            self.addons.add(around)

    # mitmproxy refuses port 0 for more than one mode.
    ports = _free_ports(1 + len(origins))
    modes = [f"regular@127.0.0.1:{ports.pop()}"]
    modes += [f"reverse:{origin}@127.0.0.1:{ports.pop()}" for origin in origins]
    listening = [word for mode in modes for word in ("--mode", mode)]
    quiet = ["--set", "termlog_verbosity=warn"]
    ran = main.run(Master, cmdline.mitmdump, [*quiet, *listening, *arguments], _filters)
    ledger_url = ran.options.ledger_url or default_url()
    show_summary(ledger_url, run_id)
    return around.exit_code if around.exit_code is not None else 1


async def _run_command(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        # Not as an ERROR: one of those while mitmproxy starts would end it with a code of its own.
        logger.warning("tokentee: cannot run %s: %s", command[0], error.strerror)
        return 127
    loop = asyncio.get_running_loop()
    # Ctrl-C reaches the command from the terminal; it decides, and we end when it does.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, process.terminate)
    code = await process.wait()
    return code if code >= 0 else 128 - code


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def _filters(arguments: object) -> dict[str, str]:
    """What mitmdump does with filter expressions on its command line."""
    words = getattr(arguments, "filter_args", None)
    return (
        {"save_stream_filter": " ".join(words), "readfile_filter": " ".join(words)} if words else {}
    )
