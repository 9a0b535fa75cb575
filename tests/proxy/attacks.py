"""What a hostile or unlucky client or upstream sends: one row for each attack.

Each is small on the wire, or as large as honest traffic is, and costs a careless proxy seconds of
work or hundreds of megabytes. The upstream answers whether usage was asked for or not, so that a
proxy without us shows what the client of an edited stream must see."""

import asyncio
import contextlib
import gzip
import json
import random
import socket
from collections.abc import Callable
from functools import lru_cache

import brotli
import zstandard

from tests.proxy.attack import (
    CHAT,
    CONVERSE,
    DONE,
    EDITED,
    EVENTSTREAM,
    FORM,
    GEMINI,
    GZIP,
    JSON,
    MB,
    OLLAMA,
    PLAIN,
    SSE,
    STOP,
    STREAMING,
    USAGE,
    WORD,
    Attack,
    chunk,
    deflated_zeros,
    document,
    edited,
    either,
    gzipped,
    in_bits,
    message,
    messages,
    multipart,
    nested,
    plain,
    whole,
    zstd_bomb,
)
from tests.proxy.http1_attacks import ATTACKS as HTTP1_ATTACKS
from tests.proxy.http1_attacks import bytes_of_upstream, head_of, received, with_extension
from tests.proxy.upstream import Answer, Raw, Request

DUPLICATES = b",".join([b'"usage":null'] * 3_000)
NESTED_USAGE = b'"a":[' + b",".join([b'{"usage":1}'] * 1_500) + b"]"


def big_start() -> bytes:
    """The beginning of an event that does not end."""
    return b'data: {"id":"x","choices":[{"delta":{"content":"' + b"a" * 8 * MB


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


BODY_ATTACKS = (
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
    # 1 500 clients at once: beside other tests on a busy disk it measures these.
    Attack("equal exchanges that end in reverse", Equal, play=equal_exchanges),
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


ATTACKS = (
    # Request line, query, headers
    Attack("path of 32 KB of models", target="/models/" + "a/models/" * 3_500 + "x:generate"),
    Attack("path of 32 KB of deployments", target="/deployments/a" * 2_200 + CHAT),
    Attack("path with a byte that is no UTF-8", target=b"/\xff" + CHAT.encode(), is_quick=True),
    Attack("path with escaped controls", target="/%00%1b%0a%ed%a0%80" * 500 + CHAT),
    Attack("query of 16 KB of keys", target=CHAT + "?" + "key" * 5_000 + "=1"),
    Attack("query of 8 000 parameters", target=CHAT + "?" + "a=&" * 8_000),
    Attack("1 000 headers", headers=tuple((f"x-h{n}", "v" * 20) for n in range(1_000))),
    Attack("1 000 tags", headers=(("x-tokentee-tag", "a=b"),) * 1_000),
    Attack("a tag of 60 KB", headers=(("x-tokentee-tag", "a=b," * 15_000),)),
    Attack("user agent with a surrogate", raw_headers=b"user-agent: a\xed\xa0\x80b\r\n"),
    Attack("authorization of 60 KB", headers=(("authorization", "Bearer " + "k" * 60_000),)),
    # Forms and JSON bodies
    Attack(
        "form of 52 KB of header lines",
        target="/v1/audio/transcriptions",
        headers=FORM,
        body=lambda: multipart(b'name="model"', b"\r\nx" * 17_000),
        is_quick=True,
    ),
    Attack(
        "form of 4 000 fields",
        target="/v1/audio/transcriptions",
        headers=FORM,
        body=lambda: multipart(b"", b'name="model"\r\n\r\n' * 4_000),
    ),
    Attack(
        "body of 100 000 brackets", body=lambda: b'{"model":"m","stream":true,"x":' + nested(50_000)
    ),
    Attack(
        "body of 3 MB of empty arrays",
        body=lambda: b'{"model":"m","stream":true,"x":[' + b"[]," * MB + b"[]]}",
    ),
    Attack("body with a number of 1 MB", body=lambda: b'{"model":"m","x":' + b"1" * MB + b"}"),
    Attack(
        "body with 20 000 stream_options",
        body=lambda: b'{"stream":true,' + b'"stream_options":{},' * 20_000 + b'"model":"m"}',
    ),
    Attack(
        "body gzipped from 200 MB",
        body=lambda: gzipped(b'{"model":"m","x":"' + bytes(200 * MB) + b'"}'),
        headers=GZIP,
        is_quick=True,
    ),
    Attack(
        "body gzipped twice from 500 MB",
        body=lambda: gzipped(bytes(500 * MB), 2),
        headers=(("content-encoding", "gzip, gzip"),),
    ),
    Attack(
        "body in brotli from 100 MB",
        body=lambda: brotli.compress(bytes(100 * MB), quality=5),
        headers=(("content-encoding", "br"),),
    ),
    Attack(
        "body in zstd from 200 MB",
        body=lambda: zstd_bomb(3_000),
        headers=(("content-encoding", "zstd"),),
    ),
    # Encoded answers
    plain(
        "gzip of 2 MB of {}", lambda: whole(gzipped(b"{}\n" * 700_000), JSON, "gzip"), is_quick=True
    ),
    messages(
        "gzip of 16 MB of data:{}", lambda: whole(gzipped(b"data:{}\n\n" * 1_700_000), SSE, "gzip")
    ),
    Attack(
        "gzip of 100 MB of zeros, event-stream",
        lambda: whole(gzipped(bytes(100 * MB)), EVENTSTREAM, "gzip"),
        target=CONVERSE,
    ),
    messages("60 000 empty gzip members", lambda: whole(gzip.compress(b"") * 60_000, SSE, "gzip")),
    messages(
        "gzip in gzip of 500 MB", lambda: whole(gzipped(bytes(500 * MB), 2), SSE, "gzip, gzip")
    ),
    messages(
        "gzip in gzip of empty members",
        lambda: whole(gzipped(gzip.compress(b"") * 100_000), SSE, "gzip, gzip"),
    ),
    Attack("deflate of 100 MB", lambda: whole(deflated_zeros(100 * MB), JSON, "deflate")),
    messages(
        "brotli of 100 MB of frames",
        lambda: whole(brotli.compress(b"data:{}\n\n" * 11 * MB, quality=5), SSE, "br"),
    ),
    messages("zstd of 1 GB", lambda: whole(zstd_bomb(16_000), SSE, "zstd"), is_quick=True),
    messages(
        "gzip of 20 MB of events with errors",
        lambda: whole(gzipped(b'data:{"error":1}\n\n' * 1_100_000), SSE, "gzip"),
    ),
    # Server-sent events
    Attack("400 000 comments", lambda: whole(b":aaaaa\n\n" * 400_000)),
    Attack("1 000 000 blank lines", lambda: whole(b"\n" * MB)),
    Attack("300 000 empty frames", lambda: whole(b"data:{}\n\n" * 300_000)),
    Attack("100 000 frames with errors", lambda: whole(b'data:{"error":1}\n\n' * 100_000)),
    Attack(
        "8 MB of one event, then 4 000 bytes",
        lambda: in_bits(big_start(), b"a" * 4_000),
        is_quick=True,
    ),
    Attack("4 MB of CR and LF", lambda: whole(b"\r\n\r\r\n\n" * 700_000)),
    Attack(
        "frames with 5 000 differing numbers",
        lambda: whole(
            chunk(WORD)
            + b"".join(
                chunk(WORD, b',"x":[' + b",".join(b'%d,"a"' % (n + k) for n in range(5_000)) + b"]")
                for k in range(80)
            )
        ),
    ),
    # Lines, arrays, binary messages
    Attack(
        "NDJSON: 8 MB of one line, then 4 000 bytes",
        lambda: in_bits(b'{"a":"' + b"a" * 8 * MB, b"a" * 4_000, "application/x-ndjson"),
        target=OLLAMA,
    ),
    Attack(
        "NDJSON: 500 000 lines of {}",
        lambda: whole(b"{}\n" * 500_000, "application/x-ndjson"),
        target=OLLAMA,
    ),
    Attack(
        "array of 1 000 000 empty objects",
        lambda: whole(b"[" + b"{}," * MB + b"{}]", JSON),
        target=GEMINI,
    ),
    Attack(
        "array: 8 MB of one element, then 4 000 bytes",
        lambda: in_bits(b'[{"a":"' + b'\\"' * 4 * MB, b"a" * 4_000, JSON),
        target=GEMINI,
    ),
    Attack(
        "event-stream of 4 MB of zeros", lambda: whole(bytes(4 * MB), EVENTSTREAM), target=CONVERSE
    ),
    Attack(
        "event-stream of 4 MB that nearly begins",
        lambda: whole(b"\x00\x00\x00\x20\x00\x00\x00\x04" * 500_000, EVENTSTREAM),
        target=CONVERSE,
    ),
    Attack(
        "event-stream message of 20 MB",
        lambda: whole(message(bytes(20 * MB)) + message(b'{"usage":{}}', "metadata"), EVENTSTREAM),
        target=CONVERSE,
    ),
    Attack(
        "event-stream message of 500 000 headers",
        lambda: whole(message(b"{}", "x" * 60_000) * 10, EVENTSTREAM),
        target=CONVERSE,
    ),
    # Documents
    plain(
        "document of 8 MB of empty arrays",
        lambda: whole(b'{"x":[' + b"[]," * 2_700_000 + b"[]]}", JSON),
        is_quick=True,
    ),
    plain("document of 60 000 nested arrays", lambda: whole(nested(60_000), JSON)),
    Attack(
        "document of 20 MB of numbers",
        lambda: whole(
            b'{"data":[{"embedding":['
            + b"0.123456789," * 1_700_000
            + b'0]}],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}}',
            JSON,
        ),
        target="/v1/embeddings",
        body=PLAIN,
    ),
    plain(
        "document of 100 000 keys",
        lambda: whole(
            document(USAGE, b"," + b",".join(b'"k%d":{}' % n for n in range(100_000))), JSON
        ),
    ),
    plain(
        "40 000 unknown keys in a usage object",
        lambda: whole(
            document(b"{" + b",".join(b'"k%d":-1' % n for n in range(40_000)) + b"}"), JSON
        ),
    ),
    plain(
        "usage object of 3 MB",
        lambda: whole(document(b'{"prompt_tokens":1,"x":"' + b"a" * 3 * MB + b'"}'), JSON),
    ),
    # Numbers, years, text
    plain(
        "cost of 1e200000",
        lambda: whole(document(b'{"prompt_tokens":9,"cost":1e200000}'), JSON),
        is_quick=True,
    ),
    plain(
        "cost of '1e999980'",
        lambda: whole(document(b'{"prompt_tokens":9,"cost":"1e999980"}'), JSON),
    ),
    plain(
        "count of 4 000 digits",
        lambda: whole(document(b'{"prompt_tokens":' + b"9" * 4_000 + b"}"), JSON),
    ),
    plain("created in the year 10^300", lambda: whole(document(USAGE, b',"created":1e300'), JSON)),
    plain(
        "created before the year 1",
        lambda: whole(document(USAGE, b',"created":-99999999999999'), JSON),
    ),
    plain(
        "id and model of surrogates and NUL",
        lambda: whole(
            b'{"id":"\\ud800\\u0000\\u001b[2J","model":"\\udfff\\u202e","choices":[],"usage":'
            + USAGE
            + b"}",
            JSON,
        ),
        is_quick=True,
    ),
    # Edited streams
    edited(
        "edited: 3 000 usage keys in one event",
        lambda: either(chunk(STOP, b"," + DUPLICATES) + DONE, chunk(STOP) + DONE),
        is_quick=True,
    ),
    edited(
        "edited: 1 500 usage keys deeper down",
        lambda: either(
            chunk(STOP, b"," + NESTED_USAGE + b',"usage":null') + DONE,
            chunk(STOP, b"," + NESTED_USAGE) + DONE,
        ),
    ),
    edited(
        "edited: 8 MB of one event, then 4 000 bytes", lambda: in_bits(big_start(), b"a" * 4_000)
    ),
    edited(
        "edited: 100 000 events",
        lambda: either(
            chunk(WORD, b',"usage" : null') * 20_000 + DONE, chunk(WORD) * 20_000 + DONE
        ),
    ),
    edited(
        "edited: an event of 4 MB",
        lambda: either(
            chunk(b'["' + b"A" * 4 * MB + b'"]', b',"usage":null') + DONE,
            chunk(b'["' + b"A" * 4 * MB + b'"]') + DONE,
        ),
    ),
    edited(
        "edited: compressed though identity was asked for",
        lambda: either(
            chunk(WORD, b',"usage":null') * 200 + chunk(b"[]", b',"usage":' + USAGE) + DONE,
            chunk(WORD) * 200 + DONE,
            gzip.compress,
            "gzip",
        ),
        is_quick=True,
    ),
    edited(
        "edited: a bomb though identity was asked for",
        lambda: whole(zstd_bomb(16_000), SSE, "zstd"),
        is_compared=False,
    ),
    edited(
        "edited: keys with escapes",
        lambda: either(chunk(WORD, b',"\\u0075sage":null') * 500 + DONE, chunk(WORD) * 500 + DONE),
    ),
    *BODY_ATTACKS,
    *HTTP1_ATTACKS,
)


def script(attack_name: str, asked: bool) -> Answer | Raw:
    """What the upstream answers in one attack."""
    attack = BY_NAME[attack_name]
    if attack.answer is None:
        return Answer(pieces=(normal_answer(),), content_type=JSON)
    return _answer_of(attack_name)(asked)


@lru_cache(maxsize=1)
def _answer_of(attack_name: str) -> Callable[[bool], Answer | Raw]:
    """Made when it is wanted: all together are hundreds of megabytes."""
    answer = BY_NAME[attack_name].answer
    assert answer is not None
    return answer()


@lru_cache(maxsize=1)
def body_of(attack_name: str) -> bytes:
    """The request body of an attack."""
    body = BY_NAME[attack_name].body
    return body if isinstance(body, bytes) else body()


def normal_answer() -> bytes:
    """The answer of an exchange that must be recorded exactly."""
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    choice = {"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}
    value = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
    return json.dumps({**value, "usage": usage}).encode()


BY_NAME = {attack.name: attack for attack in ATTACKS}
