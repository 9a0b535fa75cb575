"""What attacks are made of: a request, an answer, and what makes them large, deep or odd."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from tests.addon.framing import test_eventstream as eventstream
from tests.proxy.upstream import Answer, Raw

CHAT = "/v1/chat/completions"
EDITED = "/edited/v1/chat/completions"
"""Where the client does not ask for usage and the stream carries what asking brings."""
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
CONVERSE = "/model/x/converse-stream"
GEMINI = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
OLLAMA = "/api/chat"
JSON = "application/json"
SSE = "text/event-stream"
EVENTSTREAM = "application/vnd.amazon.eventstream"
STREAMING = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
PLAIN = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
MB = 1_000_000
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Attack:
    """A request, and the answer to it."""

    name: str
    answer: Callable[[], Callable[[bool], Answer | Raw]] | None = None
    """`answer()(asked)`; None: a short JSON document."""
    _: KW_ONLY
    target: str | bytes = CHAT
    body: bytes | Callable[[], bytes] = STREAMING
    headers: tuple[tuple[str, str], ...] = ()
    raw_headers: bytes = b""
    is_compared: bool = True
    """Not for a bomb that we decode, so that its client gets a beginning of what it stands for."""
    is_quick: bool = False
    """Runs by default, without `-m nightly`."""
    input_tokens: int | None = None
    """What its row must say, though the rest of it is hostile."""
    play: Callable[[tuple[str, int], str], bytes] | None = None
    """What a client does with the proxy's address instead of sending one request."""


plain = partial(Attack, body=PLAIN)
messages = partial(Attack, target=MESSAGES)
edited = partial(Attack, target=EDITED)


def whole(body: bytes, content_type: str = SSE, encoding: str = "") -> Callable[[bool], Answer]:
    """An answer that comes in pieces of 16 KB."""
    headers = (("content-encoding", encoding),) if encoding else ()
    pieces = tuple(body[at : at + 16_384] for at in range(0, len(body), 16_384))
    answer = Answer(pieces=pieces, content_type=content_type, headers=headers)
    return lambda _asked: answer


def in_bits(body: bytes, bits: bytes, content_type: str = SSE) -> Callable[[bool], Answer]:
    """A beginning that comes whole, and then single bytes."""
    pieces = (body, *(bits[at : at + 1] for at in range(len(bits))))
    answer = Answer(pieces=pieces, content_type=content_type)
    return lambda _asked: answer


def either(asked: bytes, unasked: bytes, encode: Callable[[bytes], bytes] = bytes, name: str = ""):
    """An answer that differs by whether usage was asked for."""
    both = whole(unasked), whole(encode(asked), encoding=name)
    return lambda is_asked: both[is_asked](is_asked)


def gzipped(body: bytes, times: int = 1) -> bytes:
    for _ in range(times):
        body = gzip.compress(body, 9)
    return body


def deflated_zeros(size: int) -> bytes:
    return zlib.compress(bytes(size), 9)


def zstd_bomb(blocks: int) -> bytes:
    """Blocks of four bytes that stand for 64 KB each."""
    return bytes.fromhex("28b52ffd0058") + b"\x02\x00\x08 " * blocks


def message(payload: bytes, kind: str = "contentBlockDelta") -> bytes:
    return eventstream.message(eventstream.header(":event-type", kind), payload)


def chunk(choices: bytes, tail: bytes = b"") -> bytes:
    head = b'"id":"chatcmpl-7Qx","object":"chat.completion.chunk","created":1761000000,"model":"m"'
    return b"data: {" + head + b',"choices":' + choices + tail + b"}\n\n"


WORD = b'[{"index":0,"delta":{"content":"a"},"finish_reason":null}]'
STOP = b'[{"index":0,"delta":{},"finish_reason":"stop"}]'
USAGE = b'{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}'


def document(usage: bytes, more: bytes = b"") -> bytes:
    """A plain answer with a usage object of any kind."""
    return b'{"id":"x","model":"m","choices":[],"usage":' + usage + more + b"}"


def multipart(head: bytes, filler: bytes) -> bytes:
    return b"--b\r\n" + head + filler + b"\r\n--b--\r\n"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


FORM = (("content-type", "multipart/form-data; boundary=b"),)
GZIP = (("content-encoding", "gzip"),)
