"""What a hostile or unlucky client or upstream sends: one row for each attack.

Each is small on the wire, or as large as honest traffic is, and costs a careless proxy seconds of
work or hundreds of megabytes. The upstream answers whether usage was asked for or not, so that a
proxy without us shows what the client of an edited stream must see.
"""

import gzip
import json
from collections.abc import Callable
from functools import lru_cache

import brotli

from tests.proxy.attack import (
    CHAT,
    CONVERSE,
    DONE,
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
from tests.proxy.body_attacks import ATTACKS as BODY_ATTACKS
from tests.proxy.http1_attacks import ATTACKS as HTTP1_ATTACKS
from tests.proxy.upstream import Answer, Raw

DUPLICATES = b",".join([b'"usage":null'] * 3_000)
NESTED_USAGE = b'"a":[' + b",".join([b'{"usage":1}'] * 1_500) + b"]"


def big_start() -> bytes:
    """The beginning of an event that does not end."""
    return b'data: {"id":"x","choices":[{"delta":{"content":"' + b"a" * 8 * MB


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
        lambda: whole(message(bytes(20 * MB)) + message(b'{"usage":{}}', b"metadata"), EVENTSTREAM),
        target=CONVERSE,
    ),
    Attack(
        "event-stream message of 500 000 headers",
        lambda: whole(message(b"{}", b"x" * 60_000) * 10, EVENTSTREAM),
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
