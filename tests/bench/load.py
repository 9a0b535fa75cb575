"""A fast client: raw asyncio protocols, keep-alive, one request at a time on each connection.

    python -m tests.bench.load HOST:PORT short --connections 16 --seconds 2

prints one JSON object. Answers of one workload are all of one size, but for the few bytes that it
takes to pass one chunk on as two; another size ends the run, so that no figure is won by losing
bytes.
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import time

_SENT = re.compile(rb'"content":"(\d{19})"')
_DONE = b"0\r\n\r\n"
RECHUNKING_BYTES_MAX = 200
"""Less than the smallest frame."""


class Load:
    """What all connections share."""

    def __init__(self, workload: str, *, asks: bool, host: str) -> None:
        options = b',"stream_options":{"include_usage":true}' if asks else b""
        stream = b"" if workload == "json" else b',"stream":true'
        body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"%s"}]%s%s}' % (
            b"Tell me about ledgers. " * 40,
            stream,
            options,
        )
        self.request = (
            b"POST /%s/v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer sk-bench"
            b"\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\nUser-Agent: bench\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (workload.encode(), host.encode(), len(body), body)
        )
        self.workload = workload
        self.sizes: set[int] = set()
        self.answers = 0
        self.first_ns: list[int] = []
        self.transit_ns: list[int] = []
        self.lost: str | None = None
        self.begun = 0
        self.is_over = False


class Connection(asyncio.Protocol):
    """Sends, reads to the end of the answer, and sends again."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._transport: asyncio.Transport
        self._reset()

    def _reset(self) -> None:
        self._got = 0
        self._tail = b""
        self._wanted = 0
        self._has_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._load.is_over:
            self._load.lost = f"connection lost: {exc!r}"

    def _send(self) -> None:
        self._sent_ns = time.monotonic_ns()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        load = self._load
        self._got += len(data)
        if not self._has_begun and b"{" in data:
            self._has_begun = True
            load.begun += 1
            load.first_ns.append(time.monotonic_ns() - self._sent_ns)
        if load.workload == "json":
            if not self._wanted:
                head, blank, _ = data.partition(b"\r\n\r\n")
                if not blank:
                    load.lost = "the head came in pieces"
                    return
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None, head
                self._wanted = len(head) + 4 + int(length[1])
            if self._got < self._wanted:
                return
        else:
            if load.workload == "paced":
                now = time.monotonic_ns()
                load.transit_ns += [now - int(sent) for sent in _SENT.findall(data)]
            self._tail = data[-5:] if len(data) >= 5 else (self._tail + data)[-5:]
            if self._tail != _DONE:
                return
        load.answers += 1
        load.sizes.add(self._got)
        self._reset()
        if not load.is_over:
            self._send()


def quantile(values: list[int], share: float) -> float | None:
    """In microseconds."""
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))] / 1000 if ordered else None


async def run(arguments: argparse.Namespace) -> dict[str, object]:
    host, _, port = arguments.address.rpartition(":")
    load = Load(arguments.workload, asks=arguments.asks, host=arguments.address)
    loop = asyncio.get_running_loop()
    transports = []
    for start in range(0, arguments.connections, 50):
        count = min(50, arguments.connections - start)
        transports += await asyncio.gather(
            *(loop.create_connection(lambda: Connection(load), host, port) for _ in range(count))
        )
    warm = loop.time() + arguments.warmup
    while loop.time() < warm or (
        load.workload == "slow" and load.begun < arguments.connections and not load.lost
    ):
        await asyncio.sleep(0.05)
    load.answers, load.first_ns, load.transit_ns = 0, [], []
    started, used = time.monotonic(), time.process_time()
    if load.workload == "slow":
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
    else:
        await asyncio.sleep(arguments.seconds)
    seconds, used = time.monotonic() - started, time.process_time() - used
    load.is_over = True
    for transport, _ in transports:
        transport.abort()
    sizes = load.sizes or {0}
    if max(sizes) - min(sizes) > RECHUNKING_BYTES_MAX:
        load.lost = f"answers of different sizes: {min(sizes)} and {max(sizes)}"
    if load.lost:
        raise SystemExit(load.lost)
    return {
        "answers": load.answers,
        "seconds": seconds,
        "client_cpu": used / seconds,
        "first_us_p50": quantile(load.first_ns, 0.5),
        "transit_us_p50": quantile(load.transit_ns, 0.5),
        "transit_us_p90": quantile(load.transit_ns, 0.9),
        "transit_us_p99": quantile(load.transit_ns, 0.99),
        "transits": len(load.transit_ns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("address")
    parser.add_argument("workload", choices=["short", "burst", "json", "paced", "slow", "first"])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--asks", action="store_true", help="ask for usage")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    print(json.dumps(asyncio.run(run(arguments))), flush=True)


if __name__ == "__main__":
    main()
