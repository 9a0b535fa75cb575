"""Edge. A real mitmdump with the addon, in front of the demo's systems."""

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ledger.model.errors import LedgerError

START_SECONDS_MAX = 60
"""Import, migration of a new ledger and mitmproxy's new certificate take 2-4 s, and more on a
machine that has just installed everything."""
STOP_SECONDS_MAX = 20
STARTS_MAX = 3
"""Another program may bind a port after we chose it and before mitmdump listens there."""
LOG_LINES_KEPT = 40
ACTIVE = "tokentee: ledger "
"""The log line of the addon when it starts to record."""
SCRIPT = Path(__file__).parent.parent / "tee.py"


@contextlib.asynccontextmanager
async def recording(
    ledger: Path, confdir: Path, upstreams: Mapping[str, int]
) -> AsyncIterator[dict[str, int]]:
    """Runs mitmdump in front of each provider's port; yields the port to send to, by provider.

    At the end of the block mitmdump has ended and the ledger is complete.
    """
    for last in [False] * (STARTS_MAX - 1) + [True]:
        ports = dict(zip(upstreams, _free_ports(len(upstreams)), strict=True))
        process = await _launch(ledger, confdir, upstreams, ports)
        log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        reader: asyncio.Task[None] | None = None
        try:
            if await _is_up(process, log, listeners=len(ports)):
                reader = asyncio.create_task(_read_on(process, log))
                yield ports
                return
        finally:
            await _end(process)
            if reader is not None:
                await reader
        port_taken = any("address already in use" in line for line in log)
        if last or not port_taken:
            raise LedgerError(f"the demo's mitmdump did not start. It said:\n{'\n'.join(log)}")


def command(
    ledger: Path, confdir: Path, upstreams: Mapping[str, int], ports: Mapping[str, int]
) -> list[str]:
    """mitmdump's arguments."""
    hosts = ",".join(f"127.0.0.1:{port}={provider}" for provider, port in upstreams.items())
    arguments = ["-s", str(SCRIPT)]
    for provider, port in upstreams.items():
        arguments += ["--mode", f"reverse:http://127.0.0.1:{port}@127.0.0.1:{ports[provider]}"]
    for name, value in {
        "confdir": confdir,
        "ledger_url": f"sqlite:///{ledger}",
        "tee_hosts": hosts,
        "flow_detail": "0",
        "termlog_verbosity": "info",
    }.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


async def _launch(
    ledger: Path, confdir: Path, upstreams: Mapping[str, int], ports: Mapping[str, int]
) -> asyncio.subprocess.Process:
    # The mitmdump of this environment, without its script's path.
    program = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]
    return await asyncio.create_subprocess_exec(
        *program,
        *command(ledger, confdir, upstreams, ports),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ
        | {
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            # A separate secret: the user's secret is for the user's ledgers.
            "TOKENTEE_SECRET_FILE": str(ledger.with_name("secret")),
        },
    )


async def _is_up(process: asyncio.subprocess.Process, log: deque[str], *, listeners: int) -> bool:
    """Read the log until all ports listen and the ledger is active; False if it ends first."""
    assert process.stdout is not None
    listening, active = 0, False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS_MAX):
            async for line in process.stdout:
                log.append(line.decode(errors="replace").rstrip())
                listening += "listening at" in log[-1]
                active = active or ACTIVE in log[-1]
                if active and listening == listeners:
                    return True
    return False


async def _read_on(process: asyncio.subprocess.Process, log: deque[str]) -> None:
    """Drain the pipe: mitmdump would block on a full one."""
    assert process.stdout is not None
    async for line in process.stdout:
        log.append(line.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
