"""Attacks by long request bodies, encoded or not, and by answers that make us read them again."""

import gzip
import json
import random
import socket
from functools import lru_cache

import zstandard

from tests.proxy.attack import (
    DONE,
    GZIP,
    JSON,
    MB,
    STOP,
    WORD,
    Attack,
    chunk,
    edited,
    either,
)
from tests.proxy.http1_attacks import bytes_of_upstream, head_of, received, with_extension
from tests.proxy.upstream import Answer


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
)
