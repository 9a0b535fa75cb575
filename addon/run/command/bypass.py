"""Edge. Detects connections of the command that bypass the recorder.

Method: every `PERIOD_SECONDS` it reads the open TCP connections of the command and its descendants
from /proc, and remembers each direct one to port 443 or to a port of a known local server. When the
command has ended, it resolves the hosts that SDKs call and compares the addresses. So it can miss a
connection that lives for less than a period, HTTP/3, and a process that has left the command's
tree. Hosts behind one address of a content network cannot be distinguished, so the warning says
"may". Linux only: elsewhere nothing is watched.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger.text.figures import counted

PERIOD_SECONDS = 0.2
"""An LLM request lasts longer than that; reading /proc takes about 1 ms."""
TABLE_BYTES_MAX = 512 * 2**10
"""Of one /proc/PID/net/tcp; 3 400 connections. The rest is not read."""
PROCESSES_MAX = 500
RESOLVE_SECONDS_MAX = 3.0
"""For all names together, once, and only if there is a connection to explain."""
LOCAL_SERVERS = {11434: "Ollama", 1234: "LM Studio"}
"""Ports on loopback that only an LLM server uses by default."""
_ESTABLISHED, _CONNECTING = "01", "02"

type Address = tuple[str, int]


class Watch:
    """Counts the direct connections of a process and its descendants."""

    def __init__(self, pid: int, *, own_port: int, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._own_port = own_port
        self._proc = proc
        self._counted: set[str] = set()
        self.seen: Counter[Address] = Counter()

    async def run(self) -> None:
        """Sample until cancelled."""
        while (self._proc / str(self._pid) / "net" / "tcp").exists():
            with contextlib.suppress(OSError):  # a process ends while it is read
                self.sample()
            await asyncio.sleep(PERIOD_SECONDS)

    def sample(self) -> None:
        """Take one sample."""
        candidates = {}
        for name in ("tcp", "tcp6"):
            path = self._proc / str(self._pid) / "net" / name
            with contextlib.suppress(FileNotFoundError), path.open() as table:
                candidates.update(self._candidates(table.read(TABLE_BYTES_MAX)))
        if not candidates:
            return
        for inode in self._sockets() & candidates.keys():
            self._counted.add(inode)
            self.seen[candidates[inode]] += 1

    def _candidates(self, table: str) -> dict[str, Address]:
        """Inode -> remote address of the connections that could be LLM calls."""
        found = {}
        for line in table.splitlines()[1:]:
            words = line.split()
            if len(words) < 10 or words[3] not in (_ESTABLISHED, _CONNECTING):
                continue
            host, port = _address(words[2])
            inode = words[9]
            is_local = ipaddress.ip_address(host).is_loopback
            if inode in self._counted or (is_local and port == self._own_port):
                continue
            if port == 443 or (is_local and port in LOCAL_SERVERS):
                found[inode] = (host, port)
        return found

    def _sockets(self) -> set[str]:
        """Inodes of the sockets that the tree of processes has open."""
        found = set()
        for pid in self._tree():
            with contextlib.suppress(OSError):
                for link in (self._proc / pid / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        target = str(link.readlink())
                        if target.startswith("socket:["):
                            found.add(target[8:-1])
        return found

    def _tree(self) -> list[str]:
        pids = [str(self._pid)]
        for pid in pids:
            if len(pids) >= PROCESSES_MAX:
                break
            with contextlib.suppress(OSError):
                for task in (self._proc / pid / "task").iterdir():
                    pids += (task / "children").read_text().split()
        return pids[:PROCESSES_MAX]


async def resolve(hosts: Iterable[str]) -> dict[str, str]:
    """Address -> the first name that has it, for the names that resolve in time."""
    loop = asyncio.get_running_loop()
    names = list(dict.fromkeys(hosts))
    found: dict[str, str] = {}

    async def one(name: str) -> None:
        with contextlib.suppress(OSError):
            for entry in await loop.getaddrinfo(name, 443, type=socket.SOCK_STREAM):
                found.setdefault(str(entry[4][0]), name)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            await asyncio.gather(*(one(name) for name in names))
    return found


def warnings(seen: Mapping[Address, int], names: Mapping[str, str]) -> list[str]:
    """A warning for each host that the command may have called without the recorder."""
    past: Counter[str] = Counter()
    local: Counter[Address] = Counter()
    for (host, port), count in seen.items():
        if host in names:
            past[names[host]] += count
        elif port in LOCAL_SERVERS:
            local[host, port] += count
    lines = [
        f"{counted(count, 'connection')} to {name} went past the recorder: a client that ignores "
        "HTTPS_PROXY may have made requests that are not in the ledger"
        for name, count in past.items()
    ]
    for (host, port), count in local.items():
        shown = f"[{host}]" if ":" in host else host
        lines.append(
            f"{counted(count, 'connection')} to {LOCAL_SERVERS[port]} at {shown}:{port} went past "
            "the recorder: traffic on loopback is not led through it. To record it: tokentee run "
            f"--set tee_hosts={shown}:{port} -- COMMAND"
        )
    return lines


def _address(text: str) -> Address:
    """An address as /proc/net/tcp writes it: 32-bit words in the machine's byte order."""
    host, _, port = text.partition(":")
    raw = bytes.fromhex(host)
    packed = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)
