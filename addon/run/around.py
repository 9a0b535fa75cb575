"""Wiring. `tokentee run -- COMMAND`: the proxy, the command in its environment, and the bill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mitmproxy import ctx, http, options
from mitmproxy.options import CONF_DIR

from addon.proxy import options as proxy_options
from addon.run import master
from addon.run.call.arguments import Call
from addon.run.command import authorities, bypass, child, hosts, outbound
from addon.run.command.environment import environment_for
from addon.run.command.gate import USER, Gate
from addon.run.workspace import workspace_of
from ledger.model.errors import LedgerError
from ledger.store.engines.urls import default_url

if TYPE_CHECKING:
    from addon.run.command.socks_bridge import Bridge

LOOPBACK = "127.0.0.1"
IDLE_SECONDS_MAX = 24 * 3600
"""For a connection. mitmproxy closes one after 600 s without a byte; a long answer that is not
streamed may take more, and the client decides how long it waits."""
PRELOAD = Path(__file__).with_name("preload.cjs")
WRONG_CALL = 2
PROXY_STOPPED = (
    "THE PROXY STOPPED WHILE THE COMMAND RAN, and the command was ended: behind a closed port "
    "each of its requests would fail"
)
SECRET_BYTES = 24
"""Length of the credential: 192 bits cannot be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The facts that are known before the proxy starts."""

    call: Call
    gate: Gate
    secret: str
    proxy_port: int
    listeners: dict[str, str]
    """Origin of a local server -> URL of the listener that replaces it."""
    specs: tuple[str, ...]
    """mitmproxy's modes, one for each listener."""
    folder: Path
    """For the certificates; removed at the end of the run."""
    bridges: tuple[Bridge, ...]
    """To the SOCKS proxies that the environment names."""


def run_around(call: Call) -> int:
    """Run the command; returns its exit code. 127 if it cannot be started, 2 if the proxy cannot
    be.

    Prints the command's usage, and warnings about bypassed requests, to stderr.
    """
    if call.expect and not call.expect_update:
        from addon.run import expect

        expect.read(Path(call.expect))  # an error in it is said before the command runs
    try:
        way_out = outbound.outbound_of(os.environ)
    except outbound.BadProxyError as error:
        _print(str(error))
        return 2
    try:
        authorities.check_folder(call.value_of("confdir") or CONF_DIR)
    except LedgerError as error:
        _print(str(error))
        return _without_recorder(call)
    run_id = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="tokentee-") as name:
        folder = Path(name)
        trusted, troubles = authorities.write_trusted(folder, os.environ)
        for trouble in troubles:
            _print(trouble)
        plan = _plan(call, way_out, folder)
        around = Around(plan)

        def make(opts: options.Options) -> master.RecordingMaster:
            opts.update(ssl_verify_upstream_trusted_ca=str(trusted), tcp_timeout=IDLE_SECONDS_MAX)
            made = master.RecordingMaster(
                opts,
                tags={"run": run_id},
                workspace=workspace_of(Path.cwd()),
                chooser=plan.gate,
                passes_on=not any(word in ("-s", "--scripts") for word in call.options),
                with_proxyauth=call.asks_for_proxyauth,
                named=call.set_names,
                on_started=around.start,
            )
            made.addons.add(around)
            return made

        words = [word for spec in plan.specs for word in ("--mode", spec)]
        if "termlog_verbosity" not in call.set_names:
            words += ["--set", "termlog_verbosity=warn"]
        ran = None
        try:
            ran = master.run_master(make, [*words, *call.options], call.filters)
        except SystemExit as stopped:  # an error of the start, which was printed
            if stopped.code == WRONG_CALL:
                raise
    for line in around.troubles:
        _print(line)
    if ran is None or around.exit_code is None:
        return 1 if around.was_started else _without_recorder(call)
    return _told(call, around, ran.options.ledger_url or default_url(), run_id)


def _told(call: Call, around: Around, ledger_url: str, run_id: str) -> int:
    """Print what the command used; returns the exit code of the run."""
    if around.requests:
        from addon.run.summary import show_summary

        show_summary(ledger_url, run_id)
    else:
        _print("no LLM request passed")
    for line in around.warnings:
        _print(line)
    assert around.exit_code is not None
    if call.expect is not None and not around.exit_code:
        return _compared(call, ledger_url, run_id)
    return around.exit_code


def _compared(call: Call, ledger_url: str, run_id: str) -> int:
    """The exit code of what was used against what was expected."""
    from addon.run import expect

    assert call.expect is not None

    differences = expect.check(ledger_url, run_id, Path(call.expect), update=call.expect_update)
    for line in differences:
        _print(f"not as {call.expect} expects: {line}")
    if call.expect_update:
        _print(f"{call.expect} is written")
    return 1 if differences else 0


def _without_recorder(call: Call) -> int:
    """The recorder could not start: run the command without it, or not at all."""
    if not call.unrecorded_ok:
        _print("the command was not started; --unrecorded-ok starts it without a recorder")
        return 2
    _print("the command runs without a recorder")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(call.command[0], call.command)  # noqa: S606  # the user's own
    except (OSError, ValueError) as error:
        trouble = child.cannot_start(call.command, error)
        _print(str(trouble))
        return trouble.exit_code


class Around:
    """Runs the command while the proxy is up, and stops the proxy when the command ends."""

    name = "tokentee-command"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._task: asyncio.Task[None] | None = None
        self._watch: bypass.Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self.requests = 0
        """HTTP requests that passed, to LLMs and others."""
        self.exit_code: int | None = None
        self.was_started = False
        self.warnings: list[str] = []
        self.troubles: list[str] = []
        """Why the command was not started, or was ended."""

    def request(self, _: http.HTTPFlow) -> None:
        """mitmproxy's hook."""
        self.requests += 1

    def start(self) -> None:
        """Start the command: everything listens, and the ledger is open."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        command = self._plan.call.command
        try:
            for bridge in self._plan.bridges:
                await bridge.start()
            environment = self._environment()
            self.exit_code = await child.run_command(
                command, environment, on_start=self._start_watching
            )
            await self._explain()
        except child.CannotStartError as error:
            self.exit_code = error.exit_code
            self.warnings.append(str(error))
        except asyncio.CancelledError:
            if self.was_started:
                self.troubles.append(PROXY_STOPPED)
            raise
        except (OSError, LedgerError) as error:  # of a bridge, or of the certificates
            self.troubles.append(f"cannot lead a command through the proxy: {error}")
        finally:
            for bridge in self._plan.bridges:
                bridge.close()
            ctx.master.shutdown()

    def _environment(self) -> dict[str, str]:
        plan = self._plan
        named = (*plan.gate.hosts.named, *_configured_hosts())
        plan.gate.hosts = hosts.LlmHosts(named=named, everything=plan.call.everything)
        authority = Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem"
        no_proxy = hosts.no_proxy_for(outbound.no_proxy_of(os.environ), plan.gate.hosts)
        # With `tee_hosts=127.0.0.1` the child sends requests for loopback through the proxy.
        listeners = plan.listeners if LOOPBACK in no_proxy else {}
        return environment_for(
            os.environ,
            proxy_url=f"http://{USER}:{plan.secret}@{LOOPBACK}:{plan.proxy_port}",
            no_proxy=no_proxy,
            bundles=authorities.write_bundles(
                plan.folder,
                os.environ,
                authorities.read_trust(os.environ),
                authority.read_bytes(),
                everything=plan.call.everything,
            ),
            listeners=listeners,
            preload=str(PRELOAD),
            node_hosts=hosts.javascript_pattern(plan.gate.hosts),
        )

    def _start_watching(self, pid: int) -> None:
        self.was_started = True
        self._watch = bypass.Watch(pid, own_ports=[self._plan.proxy_port])
        self._watching = asyncio.get_running_loop().create_task(self._watch.run())

    async def _explain(self) -> None:
        """Print warnings about requests that may have bypassed the recorder."""
        assert self._watch is not None
        assert self._watching is not None
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        names: dict[str, str] = {}
        if any(port == 443 for _, port in self._watch.seen):
            named = [each.name for each in self._plan.gate.hosts.named]
            names = await bypass.resolve([*hosts.default_hosts(), *named])
        self.warnings += bypass.warnings(self._watch.seen, names)


def _plan(call: Call, way_out: outbound.Outbound, folder: Path) -> Plan:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    origins = sorted({hosts.origin_of(url) for url in hosts.local_base_urls(os.environ).values()})
    proxy_port, *ports = _free_ports(1 + len(origins))
    port_of = dict(zip(origins, ports, strict=True))
    bridges = _bridges_to(way_out.socks)
    way_out = way_out.replaced({proxy: bridge.proxy for proxy, bridge in bridges.items()})
    via = way_out.any_proxy
    proxy_spec = f"{f'upstream:{via.url}' if via else 'regular'}@{LOOPBACK}:{proxy_port}"
    reverse = {f"reverse:{origin}@{LOOPBACK}:{port_of[origin]}": origin for origin in origins}
    named = hosts.from_base_urls(os.environ)
    return Plan(
        call=call,
        gate=Gate(
            secret=secret,
            proxies={proxy_spec},
            listeners=reverse,
            hosts=hosts.LlmHosts(named=named, everything=call.everything),
            outbound=way_out,
        ),
        secret=secret,
        proxy_port=proxy_port,
        listeners={
            origin: f"http://{LOOPBACK}:{port}/{secret}" for origin, port in port_of.items()
        },
        specs=(proxy_spec, *reverse),
        folder=folder,
        bridges=tuple(bridges.values()),
    )


def _bridges_to(proxies: Sequence[outbound.Proxy]) -> dict[outbound.Proxy, Bridge]:
    if not proxies:
        return {}
    from addon.run.command.socks_bridge import Bridge

    return {proxy: Bridge(proxy) for proxy in proxies}


def _configured_hosts() -> tuple[hosts.Host, ...]:
    """The hosts of `tee_hosts`. The recorder has already reported an invalid value."""
    try:
        settings = proxy_options.parse(ctx.options)
    except (ValueError, LedgerError):
        return ()
    return tuple(hosts.Host(name=each.host, port=each.port) for each in settings.upstreams)


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; mitmproxy refuses port 0 for more than one mode."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _print(text: str) -> None:
    sys.stderr.write(f"tokentee: {text}\n")
