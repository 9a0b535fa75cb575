"""Wiring. `tokentee run -- COMMAND`: the proxy, the command in its environment, and the bill."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import signal
import socket
import sys
from pathlib import Path

from mitmproxy import ctx
from mitmproxy.options import CONF_DIR

from addon.proxy import options as proxy_options
from addon.proxy.recorder import Recorder
from addon.run.call.arguments import LOOPBACK, Call, set_options
from addon.run.command import authorities, child, daemons, hosts
from addon.run.command.connection_policy import USER, ConnectionPolicy
from addon.run.leftovers import RunFolder, run_folder
from addon.run.master import RecordingMaster, run_master
from addon.run.seen import SeenTraffic, count, place_of
from ledger.model.errors import LedgerError
from ledger.settings.small_files import expanded
from ledger.store.engines.urls import default_url
from ledger.text import first_minute
from ledger.text.hints import as_typed, named_ledger

IDLE_SECONDS_MAX = 24 * 3600
"""For a connection. mitmproxy closes one after 600 s without a byte; a long answer that is not
streamed may take more, and the client decides how long it waits."""
PRELOAD = Path(__file__).with_name("preload.cjs")
WRONG_CALL = 2
PROXY_STOPPED = (
    "THE PROXY STOPPED WHILE THE COMMAND RAN, so the command was ended: without the proxy each of "
    "its requests would fail"
)
SECRET_BYTES = 24
"""Length of the credential: 192 bits cannot be guessed."""


def run_proxied(call: Call) -> int:
    """Run the command; returns its exit code. 127 if it cannot be started, 2 if the proxy cannot
    be.

    Prints the command's usage, and warnings about bypassed requests, to stderr.
    """
    try:
        way_out = hosts.outbound_of(os.environ)
    except hosts.BadProxyError as error:
        _print(str(error))
        return 2
    try:
        authorities.check_folder(set_options(call.options).get("confdir") or CONF_DIR)
    except LedgerError as error:
        _print(str(error))
        return _without_recorder(call)
    if any(cap.usd is not None and cap.list_value_usd is None for cap in call.caps):
        _print(
            "--max-usd counts only what is billed by tokens; --max-list-usd also what a plan covers"
        )
    run_id = secrets.token_hex(4)
    project, git_branch = child.workspace_of()
    recorder = Recorder(
        tags={"run": run_id}, project=project, git_branch=git_branch, caps=call.caps
    )
    with run_folder() as folder:
        trusted, troubles = authorities.write_trusted(folder.path, os.environ)
        for trouble in troubles:
            _print(trouble)
        proxied = ProxiedCommand(call, way_out, folder)
        words = [word for spec in proxied.specs for word in ("--mode", spec)]
        if "termlog_verbosity" not in set_options(call.options):
            words += ["--set", "termlog_verbosity=warn"]
        words += call.options
        has_script = any(word in ("-s", "--scripts") for word in call.options)
        opts = None
        try:
            opts = run_master(
                lambda opts: RecordingMaster(
                    opts,
                    words,
                    recorder,
                    chooser=proxied.policy,
                    passes_on=not has_script,
                    last=(proxied, proxied.traffic),
                    on_started=proxied.start,
                ),
                words,
                {
                    "ssl_verify_upstream_trusted_ca": str(trusted),
                    "tcp_timeout": IDLE_SECONDS_MAX,
                },
            )
        except SystemExit as stopped:  # an error of the start, which was printed
            if stopped.code == WRONG_CALL:
                raise
    for line in proxied.troubles:
        _print(line)
    if opts is None or proxied.exit_code is None:
        if proxied.was_started or (opts is not None and not proxied.troubles):  # by a signal
            return 1
        return _without_recorder(call)
    return _result(proxied, opts.ledger_url or default_url(), run_id, recorder)


def _result(proxied: ProxiedCommand, ledger_url: str, run_id: str, recorder: Recorder) -> int:
    """Print what the command used; returns the exit code of the run."""
    assert proxied.exit_code is not None
    is_recorded = False
    seen = proxied.traffic.seen
    if seen.requests:
        from addon.run import bill

        since, unrecorded = None, ""
        if recorder.recording:
            ledger = recorder.recording.ledger
            since, unrecorded = ledger.first_opened_at, ledger.health().unrecorded()
        is_recorded = bill.show(ledger_url, run_id, since=since, unrecorded=unrecorded)
    else:
        _print("no LLM request passed")
    warnings = proxied.warnings
    if not (is_recorded or warnings):
        seen.unread, seen.local = proxied.policy.unread, proxied.local_connections()
        warnings = daemons.from_before(proxied.ran_before, proxied.program)
        warnings += first_minute.nothing_recorded(seen, is_command=True)
    for line in [*warnings, *proxied.left_behind()]:
        _print(line)
    return proxied.exit_code


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


class ProxiedCommand:
    """Runs the command while the proxy is up, and stops the proxy when the command ends."""

    name = "tokentee-command"

    def __init__(self, call: Call, way_out: hosts.Outbound, folder: RunFolder) -> None:
        """`way_out`: the proxies of the parent's environment; `folder`: for certificates."""
        self._call = call
        self._folder = folder
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        via = way_out.any_proxy
        local = hosts.local_base_urls(os.environ).values()
        origins = sorted({hosts.origin_of(url) for url in local})
        # Ports that are free now: mitmproxy refuses port 0 for more than one mode.
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in (LOOPBACK, *origins)]
            for each in sockets:
                each.bind((LOOPBACK, 0))
            self._port, *ports = [each.getsockname()[1] for each in sockets]
        port_of = dict(zip(origins, ports, strict=True))
        self._listeners = {
            origin: f"http://{LOOPBACK}:{port}/{self._secret}" for origin, port in port_of.items()
        }
        """Origin of a local server -> URL of the listener that replaces it."""
        proxy_spec = f"{f'upstream:{via.url}' if via else 'regular'}@{LOOPBACK}:{self._port}"
        reverse = [f"reverse:{origin}@{LOOPBACK}:{port}" for origin, port in port_of.items()]
        self.specs = (proxy_spec, *reverse)
        """mitmproxy's modes, one for each listener."""
        self.policy = ConnectionPolicy(
            secret=self._secret,
            proxy=proxy_spec,
            listeners=reverse,
            hosts=hosts.LlmHosts(
                named=hosts.from_base_urls(os.environ), everything=call.everything
            ),
            outbound=way_out,
        )
        self._task: asyncio.Task[None] | None = None
        self._watch: child.Watch | None = None
        self.traffic = SeenTraffic()
        self.program = call.command[0]
        self.ran_before = daemons.of_program(self.program)
        """Processes of the same program, before it was started."""
        self.exit_code: int | None = None
        self.warnings: list[str] = []
        self.troubles: list[str] = []
        """Why the command was not started, or was ended."""

    @property
    def was_started(self) -> bool:
        """Whether the command has begun."""
        return self._watch is not None

    def left_behind(self) -> list[str]:
        """A line for processes of the command that go on without their proxy."""
        return daemons.left_behind(f"{USER}:{self._secret}@")

    def local_connections(self) -> dict[str, int]:
        """Connections of the command to servers on this machine, past the proxy."""
        local: dict[str, int] = {}
        for host, port in self._watch.seen if self._watch is not None else ():
            if ipaddress.ip_address(host).is_loopback:
                count(local, place_of(host, port))
        return local

    def start(self) -> None:
        """Start the command: everything listens, and the ledger is open."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        watching: asyncio.Task[None] | None = None

        def start_watch(pid: int) -> None:
            nonlocal watching
            own_names = (each.name for each in self.policy.hosts.named)
            names = (*own_names, *hosts.default_hosts())
            self._watch = child.Watch(pid, own_port=self._port, names=names)
            watching = asyncio.get_running_loop().create_task(self._watch.run())

        command = self._call.command
        try:
            named = self.policy.hosts.named
            with contextlib.suppress(ValueError, LedgerError):  # the recorder has reported them
                for each in proxy_options.parse(ctx.options).rules.upstreams:
                    named += (hosts.NamedHost(name=each.host, port=each.port),)
            self.policy.hosts = hosts.LlmHosts(named=named, everything=self._call.everything)
            authority = expanded(ctx.options.confdir) / "mitmproxy-ca-cert.pem"
            no_proxy = hosts.no_proxy_for(hosts.no_proxy_of(os.environ), self.policy.hosts)
            bundles = authorities.write_bundles(
                self._folder.path,
                os.environ,
                authority.read_bytes(),
                everything=self._call.everything,
            )
            environment = child.environment_for(
                os.environ,
                proxy_url=f"http://{USER}:{self._secret}@{LOOPBACK}:{self._port}",
                no_proxy=no_proxy,
                bundles=bundles,
                # With `tee_hosts=127.0.0.1` the child sends requests for loopback to the proxy.
                listeners=self._listeners if LOOPBACK in no_proxy else {},
                preload=str(PRELOAD),
                node_hosts=hosts.javascript_pattern(self.policy.hosts),
            )
            self.exit_code = await child.run_command(
                command, environment, inherits=self._folder.lock, on_start=start_watch
            )
            # Requests may have bypassed the recorder.
            assert self._watch is not None
            assert watching is not None
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self.warnings += child.warnings(self._watch.seen, await self._watch.names())
            self.warnings += first_minute.tunnelled(
                {
                    place: count
                    for place, count in self.policy.unread.items()
                    if hosts.is_llm_name(place.partition(":")[0])
                }
            )
        except child.CommandCannotStartError as error:
            self.exit_code = error.exit_code
            self.warnings.append(str(error))
        except asyncio.CancelledError:
            if self.was_started:
                self.troubles.append(PROXY_STOPPED)
            raise
        except (OSError, LedgerError) as error:  # of the certificates
            self.troubles.append(f"cannot connect the command to the proxy: {error}")
        finally:
            ctx.master.shutdown()


def _print(text: str) -> None:
    sys.stderr.write(f"tokentee: {as_typed(text, os.environ, named_ledger(sys.argv))}\n")
