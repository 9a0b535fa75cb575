"""Edge. The command: its project, its environment, its process, its signals, its exit code, and its
connections that bypass the recorder.

The environment is the parent's, with variables that send LLM traffic to the recorder. Only
variables that redirect traffic are set, and none that would change a client's behaviour. A base URL
in particular changes much: with `OPENAI_BASE_URL` LangChain stops asking for streamed usage,
gemini-cli refuses to start with `GOOGLE_GEMINI_BASE_URL` alone. So only base URLs that the user has
set are changed: one of a server on this machine, which clients do not call through a proxy, is
replaced by a listener with the same path after a secret prefix.

Bypasses are found so: every `PERIOD_SECONDS` a watch reads the open TCP connections of the command
and its descendants from /proc, and remembers each direct one to port 443 or to a port of a known
local server. When the command has ended, the hosts that SDKs call are resolved and compared. So it
can miss a connection that lives for less than a period, HTTP/3, and a process that has left the
command's tree. Hosts behind one address of a content network cannot be distinguished, so the
warning says "may". Linux only: elsewhere nothing is watched.
"""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from addon.run.command.hosts import base_url_variable, local_base_urls, origin_of
from ledger.settings.small_files import first_bytes
from ledger.text.figures import counted

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
END_SECONDS_MAX = 5.0
"""For a command whose proxy has stopped, between SIGTERM and SIGKILL."""
PIPE_TURNS = 3
"""Of the event loop, after which it has handled a signal: it reads the pipe in the first, and calls
the handler in the second."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
WORKSPACE_NAME_MAX = 100
GIT_HEAD_BYTES_MAX = 4_096
"""A HEAD is one line; a longer file is not a HEAD."""


class CommandCannotStartError(Exception):
    """The command cannot be started; the text gives the reason."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def cannot_start(command: Sequence[str], error: OSError | ValueError) -> CommandCannotStartError:
    """The error of a command that the system does not start, with a shell's exit code."""
    code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CommandCannotStartError(f"cannot run {command[0]}: {reason}", code)


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    inherits: int,
    on_start: Callable[[int], None],
) -> int:
    """Run the command to its end. Returns its exit code, or 128 + N if signal N ended it.

    `inherits`: the descriptor of a lock; `on_start` gets its process id. Raises
    CommandCannotStartError. If it is cancelled, it ends the command.
    """
    loop = asyncio.get_running_loop()
    process: asyncio.subprocess.Process | None = None
    early: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if process is None:
            early.append(number)
        elif number is not signal.SIGINT:
            _send(process, number)

    # Before the command starts: a signal would end us, and leave it behind a closed port. Once it
    # is there, the terminal sends Ctrl-C to the command, too: it decides, and we end when it ends.
    loop.add_signal_handler(signal.SIGINT, pass_on, signal.SIGINT)
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, for the command too
            loop.add_signal_handler(number, pass_on, number)
    # A signal of the proxy's start is still in the loop's pipe, for the handler of now.
    for _ in range(PIPE_TURNS):
        await asyncio.sleep(0)
    if early:
        text = "interrupted before the command was started"
        raise CommandCannotStartError(text, 128 + early[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=dict(environment), pass_fds=(inherits,)
        )
    except (OSError, ValueError) as error:
        raise cannot_start(command, error) from error
    on_start(process.pid)
    for number in early:
        _send(process, number)
    try:
        code = await process.wait()
    except asyncio.CancelledError:  # the proxy has stopped
        _send(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS_MAX)
        except TimeoutError:
            _send(process, signal.SIGKILL)
        raise
    return code if code >= 0 else 128 - code


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def environment_for(
    environment: Mapping[str, str],
    *,
    proxy_url: str,
    no_proxy: Sequence[str],
    bundles: Mapping[str, str],
    listeners: Mapping[str, str],
    preload: str,
    node_hosts: str,
) -> dict[str, str]:
    """The child's environment.

    `proxy_url`: with its credential; `no_proxy`: its entries; `bundles`: variable -> file;
    `listeners`: origin -> URL of the listener that replaces it; `preload`: the script that sets the
    proxy for older Node; `node_hosts`: the hosts that it proxies, as a regular expression.
    """
    child = dict(environment)
    for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        child[variable] = proxy_url
    for variable in ("ALL_PROXY", "all_proxy"):
        if environment.get(variable):
            child[variable] = proxy_url
    for variable in ("NO_PROXY", "no_proxy"):
        child[variable] = ",".join(no_proxy)
    child.update(bundles)
    for variable, url in local_base_urls(environment).items():
        if origin_of(url) in listeners:
            child[variable] = listeners[origin_of(url)] + urlsplit(url).path
    child["NODE_USE_ENV_PROXY"] = "1"
    child["NODE_OPTIONS"] = node_options(environment.get("NODE_OPTIONS", ""), preload)
    child["TOKENTEE_NODE_HOSTS"] = node_hosts
    return child


def node_options(before: str, preload: str) -> str:
    """NODE_OPTIONS with the preload after the user's own options.

    Node reads a path with blanks in double quotes, with backslashes escaped
    (https://nodejs.org/api/cli.html#node_optionsoptions).
    """
    quoted = preload.replace("\\", "\\\\").replace('"', '\\"')
    return f'{before} --require "{quoted}"'.strip()


def workspace_of(folder: Path | None = None) -> tuple[str | None, str | None]:
    """The project that a folder is in, the current one if none is named, and its git branch. Never
    raises; a current folder that was removed is in no project.

    The project is the name of the repository's folder; outside of one, of the folder itself. No
    branch: a commit is checked out, or there is no repository. Both are read from the folder and
    from `.git/HEAD`, without starting git: a repository can be prepared so that git runs an
    attacker's commands.
    """
    try:
        folder = folder or Path.cwd()
    except FileNotFoundError:
        return None, None
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_file():  # of a worktree: it names the folder
                text = first_bytes(git, GIT_HEAD_BYTES_MAX).decode("utf-8", "replace")
                named = text.partition("gitdir:")[2].strip()
                git = git.parent / named if named else git
            if not (git / "HEAD").is_file():  # a pipe would be waited for
                continue
            head = first_bytes(git / "HEAD", GIT_HEAD_BYTES_MAX).decode("utf-8", "replace")
        except (OSError, ValueError):  # ValueError: a worktree's file names a path with a zero byte
            continue
        branch = head.partition("ref: refs/heads/")[2].strip()
        return place.name[:WORKSPACE_NAME_MAX] or None, branch[:WORKSPACE_NAME_MAX] or None
    return folder.name[:WORKSPACE_NAME_MAX] or None, None


PERIOD_SECONDS = 0.2
"""An LLM request lasts longer than that; reading /proc takes about 1 ms, with 20 000 connections
0.1 s, which then is a tenth of the time."""
TABLE_BYTES_MAX = 4 * 2**20
"""Of one /proc/PID/net/tcp; 28 000 connections, as many as a machine has ports for by default.
Those that are over stay in it for a minute. The rest is not read."""
PROCESSES_MAX = 500
RESOLVE_SECONDS_MAX = 3.0
"""For all names together, once, and only if there is a connection to explain."""
LOCAL_PORT_MAX = 32_768
"""Servers listen below; above are the ports of clients, also of the command's own servers."""
LOCAL_SERVERS = {11434: "Ollama", 1234: "LM Studio"}
"""Ports on loopback that only an LLM server uses by default."""
_ESTABLISHED, _CONNECTING = "01", "02"

NAMES_SHOWN_MAX = 3
"""Hosts behind one address that a warning names."""

type Address = tuple[str, int]
type Names = dict[str, tuple[str, ...]]
"""Address -> the known hosts that have it."""


class Watch:
    """Counts the direct connections of a process and its descendants."""

    def __init__(
        self, pid: int, *, own_port: int, names: Iterable[str] = (), proc: Path = Path("/proc")
    ) -> None:
        """`names`: of the hosts to recognise."""
        self._pid = pid
        self._names = tuple(names)
        self._resolving: asyncio.Task[Names] | None = None
        self._own_port = own_port
        self._proc = proc
        self._counted: set[str] = set()
        self.seen: Counter[Address] = Counter()

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        # A thread of its own: names that are being resolved hold the loop's for seconds.
        with ThreadPoolExecutor(1) as thread:
            while (self._proc / str(self._pid) / "net" / "tcp").exists():
                began = time.monotonic()
                with contextlib.suppress(OSError):  # a process ends while it is read
                    await loop.run_in_executor(thread, self.sample)
                if self._resolving is None and self._has_direct():
                    # At once: the addresses behind a name change within minutes.
                    self._resolving = loop.create_task(resolve(self._names))
                await asyncio.sleep(max(PERIOD_SECONDS, 9 * (time.monotonic() - began)))

    async def names(self) -> Names:
        """The names behind the addresses of direct connections: when the first was seen, and now;
        empty if there was none."""
        if not self._has_direct():
            return {}
        before = await self._resolving if self._resolving is not None else {}
        found = await resolve(self._names)
        return {address: found.get(address) or before[address] for address in {**before, **found}}

    def _has_direct(self) -> bool:
        return any(port == 443 for _, port in self.seen)

    def sample(self) -> None:
        """Take one sample."""
        # The remote addresses of connections that could be LLM calls, by inode.
        candidates = {}
        for name in ("tcp", "tcp6"):
            lines: list[str] = []
            path = self._proc / str(self._pid) / "net" / name
            with contextlib.suppress(FileNotFoundError), path.open() as table:
                lines = table.read(TABLE_BYTES_MAX).splitlines()[1:]
            for line in lines:
                words = line.split(maxsplit=10)
                if len(words) < 10 or words[3] not in (_ESTABLISHED, _CONNECTING):
                    continue
                # An address is written as 32-bit words in the machine's byte order.
                written, _, hexadecimal = words[2].partition(":")
                raw, port = bytes.fromhex(written), int(hexadecimal, 16)
                packed = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                address = ipaddress.ip_address(packed)
                address = getattr(address, "ipv4_mapped", None) or address
                if words[9] in self._counted or (address.is_loopback and port == self._own_port):
                    continue
                if port == 443 or (address.is_loopback and port < LOCAL_PORT_MAX):
                    candidates[words[9]] = (str(address), port)
        if not candidates:
            return
        # The sockets that the tree of processes has open.
        pids = [str(self._pid)]
        for pid in pids:
            if len(pids) >= PROCESSES_MAX:
                break
            with contextlib.suppress(OSError):
                for task in (self._proc / pid / "task").iterdir():
                    pids += (task / "children").read_text().split()
        inodes = set()
        for pid in pids[:PROCESSES_MAX]:
            with contextlib.suppress(OSError):
                for link in (self._proc / pid / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        target = str(link.readlink())
                        if target.startswith("socket:["):
                            inodes.add(target[8:-1])
        for inode in inodes & candidates.keys():
            self._counted.add(inode)
            self.seen[candidates[inode]] += 1


async def resolve(hosts: Iterable[str]) -> Names:
    """The addresses of the names that resolve in time."""
    loop = asyncio.get_running_loop()
    names = list(dict.fromkeys(hosts))
    found: dict[str, list[str]] = {}

    async def one(name: str) -> None:
        with contextlib.suppress(OSError):
            for entry in await loop.getaddrinfo(name, 443, type=socket.SOCK_STREAM):
                found.setdefault(str(entry[4][0]), []).append(name)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            await asyncio.gather(*(one(name) for name in names))
    order = {name: at for at, name in enumerate(names)}  # not that of the answers
    return {
        address: tuple(sorted(set(those), key=order.__getitem__))
        for address, those in found.items()
    }


def warnings(seen: Mapping[Address, int], names: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A warning for each host that the command may have called without the recorder."""
    past: Counter[tuple[str, ...]] = Counter()
    local: Counter[Address] = Counter()
    for (host, port), count in seen.items():
        if host in names:
            past[names[host]] += count
        elif port in LOCAL_SERVERS:
            local[host, port] += count
    lines = [
        f"{counted(count, 'connection')} to {' or '.join(those[:NAMES_SHOWN_MAX])} went past the "
        "recorder: a client that ignores HTTPS_PROXY may have made requests that are not in the "
        f"ledger. To record it: tokentee run --mode reverse:https://{those[0]}@8080, and for the "
        f"client {base_url_variable(those[0])}"
        for those, count in past.items()
    ]
    for (host, port), count in local.items():
        shown = f"[{host}]" if ":" in host else host
        lines.append(
            f"{counted(count, 'connection')} to {LOCAL_SERVERS[port]} at {shown}:{port} went past "
            "the recorder: calls of this machine to itself do not go through it. To record it: "
            f"tokentee run --set tee_hosts={shown}:{port} -- COMMAND"
        )
    return lines
