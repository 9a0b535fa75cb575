"""Attacks by long request bodies, by answers that make us read them again, and by what a proxy keeps:
forms, refusals without end, tiny chunks, equal exchanges, paths."""

import asyncio
import contextlib
import gzip
import json
import random
import socket
from functools import lru_cache

import zstandard

from tests.proxy.attack import (
    CHAT,
    DONE,
    EDITED,
    FORM,
    GZIP,
    JSON,
    MB,
    PLAIN,
    STOP,
    STREAMING,
    WORD,
    Attack,
    chunk,
    document,
    edited,
    either,
    whole,
)
from tests.proxy.http1_attacks import bytes_of_upstream, head_of, received, with_extension
from tests.proxy.upstream import Answer, Raw, Request


@lru_cache(maxsize=1)
def words(size: int) -> str:
    """Text that compresses as English does."""
    of = random.Random(1)
    known = ["".join(of.choices("abcdefghijklmnop", k=of.randint(2, 9))) for _ in range(5_000)]
    return " ".join(of.choices(known, k=size // 6))


def prompt(text: str, *, stream: bool = False) -> bytes:
    value = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}
    return json.dumps(value).encode()


def refusal(quoted: int) -> Answer:
    """An error that quotes the prompt in each of its texts."""
    text = words(16 * MB)
    at = len(text) // 2
    error = {
        name: text[at + n * 3_000 :][:quoted] for n, name in enumerate(("message", "type", "code"))
    }
    return Answer(pieces=(json.dumps({"error": error}).encode(),), status=400, content_type=JSON)


def repeated(size: int) -> bytes:
    """A prompt that gzip makes 95 times smaller."""
    text = words(MB)[: size // 95 // 4] + " "
    return prompt((text * (size // len(text) + 1))[:size], stream=True)


def left(address: tuple[str, int], name: str) -> bytes:
    """A client that leaves after the first event, so that its tokens are estimated."""
    body = zstandard.compress(prompt(words(16 * MB), stream=True), 3)
    length = b"content-length: %d" % len(body)
    with socket.create_connection(address) as connection:
        connection.sendall(head_of(name, length, b"content-encoding: zstd") + body)
        return received(connection, lambda got: b"data:" in got)[:12]


REFUSAL_BYTES = 80 * MB
EQUAL = 400
"""Connections of one client, which all ask the same."""
PATHS = 300


def endless_refusal(_asked: bool) -> Raw:
    """A chunked 400 that goes on until its connection is cut."""

    async def write(
        _request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        piece = b"%x\r\n%s\r\n" % (65_536, b"stream_options " * 4_369 + b"x")
        writer.write(
            b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(REFUSAL_BYTES // 65_536):
                writer.write(piece)
                await writer.drain()

    return write


def in_two_byte_chunks(body: bytes) -> bytes:
    pairs = (body[at : at + 2] for at in range(0, len(body), 2))
    return b"".join(b"%x\r\n%s\r\n" % (len(pair), pair) for pair in pairs) + b"0\r\n\r\n"


class Equal:
    """Answers of equal exchanges, which end in the reverse order of their requests."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    def __call__(self, _asked: bool) -> Raw:
        async def write(
            _request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            body = document(b'{"prompt_tokens":9,"completion_tokens":3}')
            size = b"content-length: %d\r\n\r\n" % len(body)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + size)
            mine = asyncio.Event()
            self.waiting.append(mine)
            if len(self.waiting) == EQUAL:
                mine.set()
            with contextlib.suppress(ConnectionError):
                await mine.wait()
                writer.write(body)
                await writer.drain()
            self.waiting.remove(mine)
            if self.waiting:
                self.waiting[-1].set()

        return write


def equal_exchanges(address: tuple[str, int], name: str) -> bytes:
    """Asked at once on as many connections; the answers of all, once."""
    request = head_of(name, b"connection: close", b"content-length: %d" % len(PLAIN)) + PLAIN
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(EQUAL):
            opened.append(stack.enter_context(socket.create_connection(address, 60)))
            opened[-1].sendall(request)
        answers = {received(each, lambda got: got.endswith(b"}")) for each in reversed(opened)}
    return b"".join(sorted(each.partition(b"\r\n\r\n")[2] for each in answers))


def invented_paths(address: tuple[str, int], name: str) -> bytes:
    """Paths that a client and its upstream invent, so that each has something to be learned."""
    answers = set()
    for number in range(PATHS):
        target = b"/p%d%s" % (number, EDITED.encode())
        size = b"content-length: %d" % len(STREAMING)
        with socket.create_connection(address, 60) as connection:
            connection.sendall(head_of(name, b"connection: close", size, target=target) + STREAMING)
            answers.add(received(connection, lambda _: False).partition(b"\r\n\r\n")[2])
    return b"".join(sorted(answers))


def refused_if_asked(asked: bool) -> Answer:
    if asked:
        text = b'{"error":{"message":"unknown field stream_options"}}'
        return Answer(pieces=(text,), status=400, content_type=JSON)
    return Answer(pieces=(chunk(b"[]"), DONE))


def hostile_prompt() -> bytes:
    """Short words in an order of its own, so that many places of an error may quote it."""
    words = " ".join(f"sk-{number % 977:x} Bearer a-{number % 1_009:x}" for number in range(40_000))
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": words}]}).encode()


def hostile_error() -> Answer:
    words = " ".join(f"Bearer a-{number % 997:x} sk-{number % 971:x}" for number in range(40_000))
    error = {"error": {"message": words, "type": words, "code": words}}
    return Answer(pieces=(json.dumps(error).encode(),), status=400, content_type=JSON)


ATTACKS = (
    Attack("a body of 64 MB", body=lambda: prompt("a" * 64 * MB)),
    Attack(
        "a body of 16 MB that is quoted in its refusal",
        lambda: lambda _asked: refusal(2_000),
        body=lambda: prompt(words(16 * MB)),
    ),
    Attack(
        "a gzip body of 16 MB that is quoted in its refusal",
        lambda: lambda _asked: refusal(2_000),
        body=lambda: gzip.compress(prompt(words(16 * MB)), 6),
        headers=GZIP,
    ),
    Attack(
        "a zstd body of 16 MB whose client leaves",
        lambda: bytes_of_upstream(with_extension(chunk(WORD), b"a")),
        play=left,
    ),
    edited(
        "edited: a body of 64 MB",
        lambda: either(chunk(STOP, b',"usage":null') + DONE, chunk(STOP) + DONE),
        body=lambda: prompt("a" * 64 * MB, stream=True),
    ),
    edited(
        "edited: a gzip body of 60 KB that decodes to 5 MB",
        lambda: either(chunk(STOP, b',"usage":null') + DONE, chunk(STOP) + DONE),
        body=lambda: gzip.compress(repeated(5 * MB), 9),
        headers=GZIP,
    ),
    Attack(
        "form of 126 KB of one field's name",
        target="/v1/audio/transcriptions",
        headers=FORM,
        body=b"--b\r\n" + b'name="model"\r\n' * 9_000,
        is_quick=True,
    ),
    edited("edited: a refusal that does not end", lambda: endless_refusal, is_quick=True),
    edited(
        "edited: a stream in chunks of 2 bytes",
        lambda: bytes_of_upstream(in_two_byte_chunks(chunk(b'["' + b"a" * MB + b'"]'))),
    ),
    Attack("equal exchanges that end in reverse", Equal, play=equal_exchanges, is_quick=True),
    Attack(
        "300 invented paths that refuse the question", lambda: refused_if_asked, play=invented_paths
    ),
    Attack(
        "a usage object of 30 000 further keys",
        lambda: whole(
            document(
                b'{"prompt_tokens":9,"completion_tokens":3,'
                + b",".join(b'"k%d":%d' % (n, n) for n in range(30_000))
                + b"}"
            ),
            JSON,
        ),
        target=CHAT,
        body=PLAIN,
        input_tokens=9,
        is_quick=True,
    ),
    Attack("a hostile error text", lambda: lambda _asked: hostile_error(), body=hostile_prompt),
)
