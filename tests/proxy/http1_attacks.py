"""Attacks by the framing of HTTP/1.1, and by what a client does with its connections."""

import asyncio
import contextlib
import gzip
import random
import socket
import time
from collections.abc import Callable

from tests.proxy.attack import (
    CHAT,
    FORM,
    GZIP,
    JSON,
    MB,
    PLAIN,
    SSE,
    Attack,
    document,
    messages,
    plain,
    whole,
)
from tests.proxy.upstream import Answer, Raw, Request

QUIET_SECONDS = 3
"""How long a proxy that sends nothing more is waited for."""
FIRST_BYTE_SECONDS = 12
"""How long the first byte is waited for: reading 20 000 chunks takes seconds on a busy machine."""
SLOW_CONNECTIONS = 200
EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'


def bytes_of_upstream(data: bytes, content_type: str = SSE) -> Callable[[bool], Raw]:
    """A chunked answer whose body is written as it is."""

    async def write(
        _request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head % content_type.encode() + data)
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                await reader.read(1)

    return lambda _asked: write


def raw_answer(data: bytes) -> Callable[[bool], Raw]:
    """An answer that is written as it is, and its connection closed."""

    async def write(
        _request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()

    return lambda _asked: write


def with_extension(piece: bytes, extension: bytes) -> bytes:
    return b"%x;%s\r\n%s\r\n" % (len(piece), extension, piece)


def received(connection: socket.socket, is_enough: Callable[[bytes], bool]) -> bytes:
    """What comes until it is enough, or nothing more does."""
    connection.settimeout(FIRST_BYTE_SECONDS)
    got = b""
    with contextlib.suppress(OSError):
        while not is_enough(got) and (data := connection.recv(262_144)):
            got += data
            connection.settimeout(QUIET_SECONDS)
    return got


def head_of(name: str, *more: bytes, target: bytes = CHAT.encode()) -> bytes:
    lines = (b"POST %s HTTP/1.1" % target, b"host: x", b"content-type: application/json", *more)
    return b"\r\n".join((*lines, b"x-attack: " + name.encode(), b"\r\n"))


def sent_raw(rest: Callable[[], bytes], *more: bytes) -> Callable[[tuple[str, int], str], bytes]:
    """A request whose body is framed by hand, on a connection that is closed after it."""

    def play(address: tuple[str, int], name: str) -> bytes:
        with socket.create_connection(address) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(head_of(name, b"connection: close", *more) + rest())
            return received(connection, lambda _: False)

    return play


def chunked_in_bytes() -> bytes:
    body = PLAIN[:-1] + b" " * 20_000 + b"}"
    parts = [with_extension(body[at : at + 1], b"a=b") for at in range(len(body))]
    return b"".join(parts) + b"0\r\n\r\n"


CHUNKED = b"transfer-encoding: chunked"


def many_requests(address: tuple[str, int], name: str) -> bytes:
    """One after the other on one connection."""
    request = head_of(name, b"content-length: %d" % len(PLAIN)) + PLAIN
    answers = set()
    with socket.create_connection(address) as connection:
        for _ in range(300):
            connection.sendall(request)
            answers.add(received(connection, lambda got: got.endswith(b"0\r\n\r\n")))
    return b"".join(answers)


def pipelined(address: tuple[str, int], name: str) -> bytes:
    """Sent at once on one connection."""
    request = head_of(name, b"content-length: %d" % len(PLAIN)) + PLAIN
    with socket.create_connection(address) as connection:
        connection.sendall(request * 200)
        return received(
            connection,
            lambda got: got.count(b"HTTP/1.1 200") >= 200 and got.endswith(b"0\r\n\r\n"),
        )


def again_after_an_aborted_body(address: tuple[str, int], name: str) -> bytes:
    """A body that is shorter than its length, and what looks like a request in its place."""
    begun = head_of(name, b"content-length: 1000") + b"{"
    whole_request = head_of(name, b"content-length: %d" % len(PLAIN)) + PLAIN
    with socket.create_connection(address) as connection:
        connection.sendall(begun + whole_request)
        connection.shutdown(socket.SHUT_WR)
        return received(connection, lambda _: False)


def line_feeds(address: tuple[str, int], name: str) -> bytes:
    """A head without carriage returns."""
    head = head_of(name, b"connection: close", b"content-length: %d" % len(PLAIN))
    with socket.create_connection(address) as connection:
        connection.sendall(head.replace(b"\r", b"") + PLAIN)
        return received(connection, lambda _: False)


def send_slowly(address: tuple[str, int], begin: bytes, piece: bytes) -> bytes:
    """Many connections whose requests come piece by piece, and never end."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(address)) for _ in range(SLOW_CONNECTIONS)
        ]
        for data in (begin, *([piece] * 10)):
            for connection in opened:
                connection.sendall(data)
            time.sleep(0.05)
    return b""


def slow_bodies(address: tuple[str, int], name: str) -> bytes:
    return send_slowly(address, head_of(name, b"content-length: 100000"), b"{")


def slow_heads(address: tuple[str, int], name: str) -> bytes:
    return send_slowly(address, head_of(name)[:-2], b"x-a: b\r\n")


def odd_gzip() -> bytes:
    """Gzip that breaks in its middle."""
    body = bytearray(gzip.compress(random.Random(1).randbytes(3 * MB), 1))
    body[len(body) // 2] ^= 0xFF
    return bytes(body)


def parts(count: int) -> bytes:
    one = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nx\r\n'
    return one * count + b"--b--\r\n"


def whole_with_headers() -> Answer:
    many = tuple((f"x-h{number}", "v") for number in range(5_000))
    return Answer(pieces=(document(b"{}"),), content_type=JSON, headers=many)


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ANSWER = document(b"{}")
LENGTH = b"content-length: %d" % len(PLAIN)
HINT = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"


def answered(*lines: bytes, before: bytes = b"", body: bytes = ANSWER) -> Callable[[bool], Raw]:
    return raw_answer(before + OK + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body)


SIZE = b"content-length: %d" % len(ANSWER)
ONE_CHUNK = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PLAIN), PLAIN)

ODD_FRAMING = (
    # Informational answers, and upgrades that are none
    plain("2 000 answers of 103", lambda: answered(SIZE, before=HINT * 2_000)),
    plain(
        "20 answers of 102 with 50 KB of headers",
        lambda: answered(
            SIZE, before=(b"HTTP/1.1 102 Go on\r\nx-h: " + b"v" * 50_000 + b"\r\n\r\n") * 20
        ),
    ),
    plain("103 within a body", lambda: answered(SIZE, body=ANSWER[:20] + HINT + ANSWER[20:])),
    plain(
        "101 without a question",
        lambda: raw_answer(
            b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n" + ANSWER
        ),
    ),
    plain(
        "an upgrade that upstream ignores",
        lambda: answered(SIZE),
        play=sent_raw(lambda: PLAIN, LENGTH, b"connection: upgrade", b"upgrade: websocket, h2c"),
    ),
    # Lengths that contradict each other
    Attack("a length and chunks up", play=sent_raw(lambda: ONE_CHUNK, LENGTH, CHUNKED)),
    Attack("two lengths up", play=sent_raw(lambda: PLAIN, LENGTH, b"content-length: 3")),
    Attack("one length twice up", play=sent_raw(lambda: PLAIN, LENGTH, LENGTH)),
    Attack("a length and chunks down", lambda: answered(SIZE, CHUNKED, body=ONE_CHUNK)),
    Attack("two lengths down", lambda: answered(SIZE, b"content-length: 3")),
    Attack("a negative length down", lambda: answered(b"content-length: -1")),
    # Lines and names
    Attack(
        "a folded header up", play=sent_raw(lambda: PLAIN, LENGTH, b"x-tokentee-tag: a=b\r\n c=d")
    ),
    Attack(
        "a name that is no token up", play=sent_raw(lambda: PLAIN, LENGTH, b"x-tokentee tag: a=b")
    ),
    Attack("lines that end in a line feed alone up", play=line_feeds),
    Attack(
        "lines that end in a line feed alone down",
        lambda: raw_answer((OK + SIZE).replace(b"\r", b"") + b"\n\n" + ANSWER),
    ),
    Attack("a folded header down", lambda: answered(SIZE, b"x-request-id: a\r\n b")),
    Attack(
        "an absolute target with a password", target="http://user:sk-secret@x" + CHAT, body=PLAIN
    ),
    # Requests that do not end as they say
    Attack(
        "a question for 100 that nobody answers",
        play=sent_raw(lambda: PLAIN, LENGTH, b"expect: 100-continue"),
    ),
    Attack("a body that is another request", play=again_after_an_aborted_body),
)
TWICE = b'{"prompt_tokens":1,"completion_tokens":1},"usage":{"prompt_tokens":9}'

ATTACKS = (
    messages(
        "20 000 chunks with an extension each",
        lambda: bytes_of_upstream(
            b"".join(with_extension(EVENT[n % 37 : n % 37 + 1], b"a=b") for n in range(20_000))
            + b"0\r\n\r\n"
        ),
    ),
    messages(
        "a chunk extension of 60 KB",
        lambda: bytes_of_upstream(with_extension(EVENT, b"a" * 60_000) + b"0\r\n\r\n"),
    ),
    messages(
        "a chunk extension of 4 MB",
        lambda: bytes_of_upstream(with_extension(EVENT, b"a" * 4 * MB) + b"0\r\n\r\n"),
    ),
    Attack(
        "trailers of an answer",
        lambda: bytes_of_upstream(with_extension(EVENT, b"") + b"0\r\nx-a: b\r\n\r\n"),
        play=sent_raw(lambda: PLAIN, b"content-length: %d" % len(PLAIN)),
        is_quick=True,
    ),
    Attack(
        "10 000 trailers of an answer",
        lambda: bytes_of_upstream(
            with_extension(EVENT, b"") + b"0\r\n" + b"x-a: b\r\n" * 10_000 + b"\r\n"
        ),
        play=sent_raw(lambda: PLAIN, b"content-length: %d" % len(PLAIN)),
    ),
    Attack("20 000 chunks of a request with extensions", play=sent_raw(chunked_in_bytes, CHUNKED)),
    Attack(
        "trailers of a request",
        play=sent_raw(
            lambda: with_extension(PLAIN, b"a") + b"0\r\nx-usage: b\r\n\r\n",
            CHUNKED,
            b"trailer: x-usage",
        ),
    ),
    Attack(
        "a chunk size of 40 digits",
        play=sent_raw(lambda: b"f" * 40 + b"\r\n", CHUNKED),
        is_compared=False,
    ),
    Attack("a query of 1 MB", target=CHAT + "?" + "key=" * 250_000),
    Attack("a query of 1 MB of parameters", target=CHAT + "?" + "&".join(["a=b"] * 250_000)),
    Attack("a header of 1 MB", headers=(("user-agent", "a/" * 500_000),)),
    # Upstream never sees it, and refuses it where it does.
    Attack("a tag of 1 MB", headers=(("x-tokentee-tag", "a=b," * 250_000),), is_compared=False),
    Attack("a cookie of 1 MB", headers=(("cookie", "a=b; " * 200_000),)),
    Attack("20 000 headers", headers=(("x-h", "v"),) * 20_000),
    plain("an answer of 5 000 headers", lambda: lambda _asked: whole_with_headers()),
    Attack("300 requests on one connection", play=many_requests),
    Attack("200 requests at once on one connection", play=pipelined),
    Attack("200 bodies that come byte by byte", play=slow_bodies, is_quick=True),
    Attack("200 heads that come line by line", play=slow_heads),
    Attack("a gzip body that breaks", body=odd_gzip, headers=GZIP),
    Attack(
        "a gzip body of 100 000 members", body=lambda: gzip.compress(b"") * 100_000, headers=GZIP
    ),
    Attack(
        "a form of 50 000 parts",
        target="/v1/audio/transcriptions",
        headers=FORM,
        body=lambda: parts(50_000),
    ),
    Attack(
        "a body nested 100 000 objects deep",
        body=lambda: b'{"model":"m","messages":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    ),
    Attack(
        "a body of 100 000 models",
        body=lambda: b"{" + b'"model":"m",' * 100_000 + b'"messages":[]}',
    ),
    Attack(
        "a body of 100 000 messages",
        body=lambda: (
            b'{"model":"m","messages":[' + b'{"role":"user","content":"a"},' * 100_000 + b"{}]}"
        ),
    ),
    plain("usage twice", lambda: whole(document(TWICE), JSON)),
    *ODD_FRAMING,
)
