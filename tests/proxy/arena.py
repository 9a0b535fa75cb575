"""Where attacks are played: a bare proxy, ours, and a neighbour who must not notice.

Each attack runs through a bare mitmdump and through ours. Beside it a neighbour sends small LLM
requests over a connection of its own. Compared are the neighbour's longest wait, the longest turn
of the event loop, the growth of memory, and the bytes that the attacker's client gets; afterwards
a normal exchange is recorded exactly.

Waits and turns are measured inside the proxy: what it computed or slept meanwhile, not what it waited
for a processor (`own_time`, `neighbour`, `scripts/turns.py`). On an idle machine that is the time of
the clock. Beside other processes a core does up to half as much in the same CPU time (shared caches,
hyperthreads). The bounds leave room for that: beside four busy processes on two cores, of 179 attacks
that cost a bare proxy less than half a second none took more than 126 ms longer, nor 97 ms in one turn.
What costs a bare proxy a second takes one to two there, on either proxy. So what is over a bound is
played again on new proxies, and the least of ours is held against the least of the bare one: what we
do ourselves is in each of them. `test_own_time` proves that the bounds are narrow enough.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.proxy import attacks, mitmdump, rows
from tests.proxy.attack import CHAT, EDITED, JSON, PLAIN, STREAMING
from tests.proxy.mitmdump import BARE, TEE, Mitmdump
from tests.proxy.neighbour import Neighbour
from tests.proxy.own_time import Moment
from tests.proxy.pair import new_tag
from tests.proxy.upstream import Answer, Raw, Request, Upstream

WAIT_MS_MAX = 300
"""How much more the proxy may let the neighbour wait than a bare one does."""
TURN_MS_MAX = 150
"""How much more one turn of its event loop may take."""
GROWTH_MB_MAX = 48
"""How much more memory than the bare proxy ours may take, at its peak."""
PLAYS_MAX = 3
ATTACK_SECONDS_MAX = 120
TURNS = mitmdump.SCRIPTS / "turns.py"


def section(kind: str) -> str:
    """The title of a table of attacks."""
    return (
        f"{kind}, bare -> ours: the neighbour's longest wait and the loop's longest turn, both "
        "without waits for a processor; growth of memory"
    )


@dataclass
class Seen:
    """What one attack did to one proxy."""

    wait_ms: float
    turn_ms: float
    growth_mb: float
    answer: bytes
    """Status and body as the attacker's client got them."""


class Arena:
    """One upstream, one bare proxy and ours; a proxy that an attack has hurt is replaced."""

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        neighbour: Neighbour,
        *,
        beside: str | None = None,
        scripts: Iterable[Path] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`beside`: the URL of a second upstream, which attacks are sent to. `options`: of ours."""
        self.options = options or {}
        self._urls = [upstream.url] + ([beside] if beside is not None else []) + [neighbour.url]
        self._folder = folder
        self._neighbour = neighbour
        self._scripts = [TURNS, *scripts]
        self._started = 0
        self._proxies: dict[bool, Mitmdump] = {}

    def proxy(self, *, is_ours: bool) -> Mitmdump:
        if is_ours not in self._proxies:
            self._started += 1
            folder = self._folder / f"{'ours' if is_ours else 'bare'}-{self._started}"
            named = [f"{url.partition('://')[2]}=openai" for url in self._urls]
            hosts = {"tee_hosts": ",".join(named)}
            trusting = {"ssl_insecure": "true"}
            proxy = Mitmdump(
                folder,
                upstreams=self._urls,
                beside=self._scripts,
                options=trusting | (hosts | dict(self.options) if is_ours else {}),
                script=TEE if is_ours else BARE,
                has_own_interpreter=True,  # its memory is measured
            )
            self._proxies[is_ours] = proxy.start()
            for _ in range(5):  # what is done once is done before anything is measured
                exchange(proxy.address(), CHAT, PLAIN)
                exchange(proxy.address(), EDITED, STREAMING)
            self._begin(proxy)
            assert self._neighbour.end().failure is None
        return self._proxies[is_ours]

    def drop(self, *, is_ours: bool) -> None:
        proxy = self._proxies.pop(is_ours, None)
        if proxy is not None:
            proxy.kill()

    def attack(self, run: Callable[[Mitmdump], bytes], *, is_ours: bool) -> Seen:
        """Let an attack run through a proxy, beside a neighbour; it gives what its peers got."""
        proxy = self.proxy(is_ours=is_ours)
        before = memory_mb(proxy, "VmRSS")
        Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5")  # the peak begins here
        inside(proxy)  # begins anew
        self._begin(proxy)
        try:
            answer = run(proxy)
        finally:
            report = self._neighbour.end()
        assert report.failure is None, report.failure
        turn_ms, writes = inside(proxy)
        return Seen(
            wait_ms=max(passed.wait_ms(writes) for passed in report.passed),
            turn_ms=turn_ms,
            growth_mb=memory_mb(proxy, "VmHWM") - before,
            answer=answer,
        )

    def _begin(self, proxy: Mitmdump) -> None:
        self._neighbour.begin(proxy.process.pid, proxy.address(len(self._urls) - 1))


def normal(request: Request) -> Answer:
    """Upstream's script for what is no attack."""
    return Answer(pieces=(attacks.normal_answer(),), content_type=JSON)


@contextlib.contextmanager
def running_arena(
    folder: Path,
    *,
    script: Callable[[Request], Answer | Raw] = normal,
    beside: str | None = None,
    scripts: Iterable[Path] = (),
    options: Mapping[str, str] | None = None,
) -> Iterator[Arena]:
    """An arena whose proxies are killed at the end. `scripts` are loaded before the proxy's own."""
    # Starting takes seconds of CPU time, and beside other processes many of the clock.
    with (
        pytest.MonkeyPatch.context() as patch,
        Upstream(script) as upstream,
        Neighbour() as neighbour,
    ):
        patch.setattr(mitmdump, "START_SECONDS_MAX", ATTACK_SECONDS_MAX)
        running = Arena(
            folder, upstream, neighbour, beside=beside, scripts=scripts, options=options
        )
        try:
            yield running
        finally:
            running.drop(is_ours=True)
            running.drop(is_ours=False)


class Named(Protocol):
    """An attack of any kind."""

    @property
    def name(self) -> str: ...

    @property
    def is_quick(self) -> bool: ...

    @property
    def is_compared(self) -> bool: ...


def params(attacks: Iterable[Named]) -> list[object]:
    """Attacks by name; those that are not quick run by name only."""
    return [
        pytest.param(
            attack.name,
            id=attack.name.replace(" ", "-"),
            marks=[] if attack.is_quick else [pytest.mark.nightly],
        )
        for attack in attacks
    ]


def exchange(
    address: tuple[str, int],
    target: str | bytes,
    body: bytes,
    *headers: tuple[str, str],
    raw_headers: bytes = b"",
) -> tuple[int, bytes]:
    """A request on a connection of its own, and the status and body of its answer."""
    path = target if isinstance(target, bytes) else target.encode("latin-1")
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" % path
    if not any(name == "content-type" for name, _ in headers):
        headers = (*headers, ("content-type", "application/json"))
    head += b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers)
    head += raw_headers + b"content-length: %d\r\n\r\n" % len(body)
    received = []
    with socket.create_connection(address, ATTACK_SECONDS_MAX) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head + body)
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(262_144):
                received.append(data)
    head, _, raw = b"".join(received).partition(b"\r\n\r\n")
    if not head:
        return 0, b""
    is_chunked = b"transfer-encoding: chunked" in head.lower()
    return int(head.split(b" ", 2)[1]), unchunked(raw) if is_chunked else raw


def unchunked(raw: bytes) -> bytes:
    """A chunked body; what follows the first mistake in its framing is marked."""
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = raw.find(b"\r\n", at)
        size = raw[at:line_end] if line_end >= 0 else b""
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            return b"".join([*pieces, b"<not ended>", raw[at:]])
        start, length = line_end + 2, int(size, 16)
        if not length:
            return b"".join([*pieces, raw[start + 2 :]])
        pieces.append(raw[start : start + length])
        at = start + length + 2


def inside(proxy: Mitmdump) -> tuple[float, dict[str, Moment]]:
    """The longest turn of the loop since this was asked last, and its writes to the neighbour."""
    status, body = exchange(proxy.address(), "/turns", b"")
    assert status == 200
    seen = json.loads(body)
    return seen["turn_ms"], {name: Moment(*write) for name, write in seen["writes"].items()}


def memory_mb(proxy: Mitmdump, name: str) -> float:
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(name + ":")]
    return int(line.split()[1]) / 1024


def check(
    arena: Arena, attack: Named, run: Callable[[Mitmdump], bytes], say: Callable[[str], None]
) -> None:
    """Compare an attack on ours with the same on a bare proxy, and record a normal exchange."""
    bare = arena.attack(run, is_ours=False)
    problems = ["it did not come to an end"]
    figures = ""
    try:
        ours = arena.attack(run, is_ours=True)
        for _ in range(1, PLAYS_MAX):
            if not {*loads_of(ours, bare)} - {"memory grew"}:
                break
            for least, is_ours in ((bare, False), (ours, True)):
                arena.drop(is_ours=is_ours)
                again = arena.attack(run, is_ours=is_ours)
                least.wait_ms = min(least.wait_ms, again.wait_ms)
                least.turn_ms = min(least.turn_ms, again.turn_ms)
        figures = figures_of(ours, bare)
        problems = [*loads_of(ours, bare)]
        if attack.is_compared and ours.answer != bare.answer:
            problems += [f"other bytes: {shown(ours.answer)} for {shown(bare.answer)}"]
        problems += [] if is_recorded_exactly(arena.proxy(is_ours=True)) else ["not recorded"]
    finally:
        if problems:
            arena.drop(is_ours=True)
        say(f"{attack.name:<50} {figures:<50} {', '.join(problems) or 'ok'}")
    assert not problems


def shown(answer: bytes) -> str:
    """Its length, beginning and end."""
    return f"{len(answer)} bytes {answer[:40]!r}..{answer[-40:]!r}"


def figures_of(ours: Seen, bare: Seen) -> str:
    """A line of the table."""
    figures = f"{bare.wait_ms:6.0f} ->{ours.wait_ms:6.0f} ms"
    figures += f" {bare.turn_ms:5.0f} ->{ours.turn_ms:5.0f} ms"
    return figures + f" {bare.growth_mb:5.0f} ->{ours.growth_mb:5.0f} MB"


def loads_of(ours: Seen, bare: Seen) -> Iterator[str]:
    """What our proxy was over its bounds in. What costs a bare proxy seconds varies by a third."""
    if ours.wait_ms > 4 / 3 * bare.wait_ms + WAIT_MS_MAX:
        yield "the neighbour waited"
    if ours.turn_ms > 4 / 3 * bare.turn_ms + TURN_MS_MAX:
        yield "a long turn"
    if ours.growth_mb > bare.growth_mb + GROWTH_MB_MAX:
        yield "memory grew"


def is_recorded_exactly(proxy: Mitmdump) -> bool:
    tag = new_tag()
    headers = ("x-tokentee-tag", f"case={tag}")
    status, body = exchange(proxy.address(), CHAT, PLAIN, headers)
    found = rows.by_tag(proxy.ledger, "case").get(tag, [])
    figures = [
        (
            row["outcome"],
            row["input_tokens"],
            row["output_tokens"],
            row["response_id"],
            row["degraded"],
        )
        for row in found
    ]
    is_answered = (status, body) == (200, attacks.normal_answer())
    return is_answered and figures == [("complete", 9, 3, "chatcmpl-1", None)]
