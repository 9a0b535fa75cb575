"""A fast upstream: raw asyncio protocols and answers that were made before it listens.

    python -m tests.bench.upstream      prints its port; ends when its standard input does

The path says what to answer, and the request body whether usage was asked for (opt-in, as at
OpenAI: asking adds `"usage":null` to every chunk and one chunk more).
"""

import asyncio
import random
import sys
import time

SHORT_CHUNKS = 20
BURST_CHUNKS = 500
PACED_CHUNKS = 30
PACED_SECONDS = 0.1
SLOW_CHUNKS = 10

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n"
_STREAM_HEAD = _HEAD % (b"text/event-stream; charset=utf-8", b"transfer-encoding: chunked")
_FRAME = (
    b'data: {"id":"chatcmpl-bench00000000","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_44709d6fcb",'
    b'"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s}]%s}\n\n'
)
_USAGE = (
    b'data: {"id":"chatcmpl-bench00000000","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_44709d6fcb",'
    b'"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":20,"total_tokens":1220,'
    b'"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}\n\n'
)
DOCUMENT = (
    b'{"id":"chatcmpl-bench00000000","object":"chat.completion","created":1700000000,'
    b'"model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"'
    + b"All work and no play makes a dull day. "
    * 20
    + b'","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1200,'
    b'"completion_tokens":160,"total_tokens":1360,"prompt_tokens_details":{"cached_tokens":1024},'
    b'"completion_tokens_details":{"reasoning_tokens":0}},"service_tier":"default"}'
)
_WORDS = (b" the", b" of", b" recording", b" tokens", b",", b" and", b" a", b" ledger", b".")
ID = b"chatcmpl-bench00000000"
"""In every answer, and replaced by one of its own as it goes out: the same id again would be the
same response seen again, which the ledger does not count."""


def frames(count: int, *, asked: bool) -> list[bytes]:
    """`count` frames with content, a finish, usage if asked for, and the end mark."""
    null = b',"usage":null' if asked else b""
    out = [_FRAME % (_WORDS[index % len(_WORDS)], b"null", null) for index in range(count)]
    out.append(_FRAME % (b"", b'"stop"', null))
    if asked:
        out.append(_USAGE)
    return [*out, b"data: [DONE]\n\n"]


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


class Answers:
    """Everything that can be answered, ready to be written but for the id."""

    def __init__(self) -> None:
        self.short = {asked: _stream(SHORT_CHUNKS, asked=asked) for asked in (False, True)}
        self.burst = {asked: _stream(BURST_CHUNKS, asked=asked) for asked in (False, True)}
        self.slow = {
            asked: _STREAM_HEAD + chunked(frames(SLOW_CHUNKS, asked=asked)[:SLOW_CHUNKS])
            for asked in (False, True)
        }
        length = b"content-length: %d" % len(DOCUMENT)
        self.json = _HEAD % (b"application/json", length) + DOCUMENT
        self.count = 0

    def with_own_id(self, answer: bytes) -> bytes:
        self.count += 1
        return answer.replace(ID, b"chatcmpl-bench%08d" % self.count)


def _stream(count: int, *, asked: bool) -> bytes:
    return _STREAM_HEAD + chunked(frames(count, asked=asked)) + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests are not pipelined."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._buffer = b""
        self._left = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        at = lower.index(b"content-length: ") + 16
        if len(body) < int(lower[at : at + 8].split(b"\r\n", 1)[0]):
            return
        self._buffer = b""
        self._answer(head[:64], asked=b'"include_usage":true' in body)

    def _answer(self, line: bytes, *, asked: bool) -> None:
        if b"/short/" in line or b"/first/" in line:
            self._write(self._answers.short[asked])
        elif b"/json/" in line:
            self._write(self._answers.json)
        elif b"/burst/" in line:
            self._write(self._answers.burst[asked])
        elif b"/slow/" in line:
            self._write(self._answers.slow[asked])
        else:
            self._transport.write(_STREAM_HEAD)
            self._left = PACED_CHUNKS
            # Streams that start together would all send at the same moment, and measure a queue.
            offset = random.random() * PACED_SECONDS
            asyncio.get_running_loop().call_later(offset, self._pace)

    def _write(self, answer: bytes) -> None:
        self._transport.write(self._answers.with_own_id(answer))

    def _pace(self) -> None:
        """One chunk with its time of sending in it, and the next one a while later."""
        if self._transport.is_closing():
            return
        if not self._left:
            self._write(chunked(frames(0, asked=False)) + b"0\r\n\r\n")
            return
        self._left -= 1
        sent = b"%019d" % time.monotonic_ns()
        self._transport.write(chunked([_FRAME % (sent, b"null", b"")]))
        asyncio.get_running_loop().call_later(PACED_SECONDS, self._pace)


async def serve() -> None:
    answers = Answers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
