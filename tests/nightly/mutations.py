"""Recorded and made-up bytes, changed at random, and what must hold for each of them.

Every step takes some bytes and fails only by raising. `tests/nightly/test_mutations.py` runs them a
million times; `tests/nightly/fuzz_bytes.py` lets a coverage-guided fuzzer choose the bytes.
"""

import gzip
import os
import random
import re
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from addon.dialects import routes
from addon.dialects.request import read_request
from addon.framing import json_values, long_json
from addon.framing.choice import FRAMINGS, framing_of
from addon.framing.frame import Frame
from addon.metering.decoding import FREE_BYTES, RATIO_MAX, Decoder
from addon.usage_opt_in.asking import inject_usage_option, is_refusal
from tests.addon.feeding import Answer, pieces
from tests.addon.test_corpus import picture

DATA = Path(__file__).parents[1] / "data"
BODY_BYTES_MAX = 4_000
DIALECTS = sorted(routes.DIALECTS)
CONTENT_TYPES = (
    *("text/event-stream", "application/x-ndjson", "application/json", "audio/mpeg", ""),
    "application/vnd.amazon.eventstream",
)
"""With the first bytes they choose each framing."""
ENCODINGS = ("gzip", "deflate", "br", "zstd", "gzip, gzip", "br, zstd")
ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: brotli.compress(body, quality=1),
    "zstd": zstandard.compress,
}
TOKENS = (
    b'"usage":null', b',"usage":', b'"\\u0075sage":', b"\n\n", b"\r\n\r\n", b"\r", b"data: ", b"{",
    b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"1e999", b"9" * 30, b"\xff", b"\x00" * 12,
    b'"stream_options":', b"\xef\xbb\xbf", b"[DONE]", b"event: ", b": ", b"-1", b"\xed\xa0\x80",
)  # fmt: skip


VALUE = re.compile(rb"[A-Za-z0-9.+_:-]+")
SEED = int(os.environ.get("TOKENTEE_SEED", "1"))
CPU_SECONDS_MAX = 2.0
"""For all steps on one body of a few KB: they take milliseconds."""

type Check = Callable[[], None]


def seeds() -> list[bytes]:
    """The answers and requests of all test cases."""
    files = sorted(path for path in DATA.rglob("*") if path.is_file())
    return [path.read_bytes()[:BODY_BYTES_MAX] for path in files]


def mutated(rng: random.Random, bodies: Sequence[bytes], words: Sequence[bytes] = TOKENS) -> bytes:
    """One of the bodies, changed in one to eight places."""
    body = bytearray(rng.choice(bodies))
    for _ in range(rng.randrange(1, 9)):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(7):
            case 0:
                body[at:at] = rng.choice(words) * rng.choice((1, 1, 2, 50))
            case 1:
                del body[at : at + rng.randrange(1, 60)]
            case 2:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                other = rng.choice(bodies)
                start = rng.randrange(len(other) + 1)
                body[at:at] = other[start : start + rng.randrange(200)]
            case 4:
                body[at:at] = body[at : at + rng.randrange(100)]
            case 5:
                found = VALUE.search(body, at)
                if found is not None:
                    body[slice(*found.span())] = rng.choice(words)
            case _:
                body[at:] = b""
    return bytes(body)


def try_many(name: str, count: int, make: Callable[[random.Random], tuple[bytes, Check]]) -> str:
    """Check so many bodies, each of a seed of its own; a line of what it took."""
    longest = 0.0
    for number in range(count):
        body, check = make(random.Random(SEED * 1_000_000_007 + number))
        began = time.thread_time()
        try:
            check()
        except Exception as failure:
            failure.add_note(f"{name}, seed {SEED}, mutation {number}: {body!r}")
            raise
        took = time.thread_time() - began
        longest = max(longest, took)
        assert took < CPU_SECONDS_MAX, f"{name}, seed {SEED}, mutation {number}: {took:.1f} s"
    return f"{name}: {count} tried, seed {SEED}: the longest took {1000 * longest:.0f} ms"


def check_framings(body: bytes, cuts: list[int]) -> None:
    """No byte is lost, and the frames are the same, whatever the cuts."""
    for name, make in FRAMINGS.items():
        given: list[bytes] = []
        frames: list[list[Frame]] = []
        for chunks in (pieces(body, cuts), [body] if body else []):
            framing = make()
            given.append(b"")
            frames.append([])
            for run in (*map(framing.feed, chunks), framing.end()):
                blocks = framing.split(run)
                assert b"".join(blocks) == run
                frames[-1] += filter(None, map(framing.parse, blocks))
                framing.count(run)
                given[-1] += run
            # An event stream that has lost its messages for good is not read any more.
            is_lost = name == "eventstream" and framing.lost and body.startswith(given[-1])
            assert given[-1] == body or is_lost
        assert frames[0] == frames[1]
    framing_of("", body, is_over=True)


def check_stripping(body: bytes, cuts: list[int]) -> None:
    """What goes on and what was removed is what came, and the cuts mean nothing."""
    given = []
    for chunks in (pieces(body, cuts), [body] if body else []):
        answer = Answer(routes.DIALECTS["openai.chat"], edits=True)
        passed = [answer.feed(chunk) for chunk in (*chunks, b"")]
        given.append(b"".join([b"".join(one) if isinstance(one, list) else one for one in passed]))
        answer.end()
        seen = answer.tap.transfer()
        assert seen.client_bytes is not None
        assert seen.removed_bytes is not None
        assert seen.client_bytes + seen.removed_bytes == len(body)
        assert len(given[-1]) == seen.client_bytes
    assert given[0] == given[1]


def check_decoding(body: bytes, cuts: list[int], encoding: str) -> None:
    """Nothing raises, and the output is bounded."""
    encoded = body
    for name in encoding.split(", "):
        encoded = ENCODE[name](encoded)
    for wire in (body, encoded[: len(encoded) * 3 // 4] + body[:20], encoded):
        decoder = Decoder(encoding)
        given = [part for piece in pieces(wire, cuts) for part in decoder.decode(piece)]
        assert sum(map(len, given)) <= FREE_BYTES + RATIO_MAX * len(wire)
    assert b"".join(given) == body


LONG_KEYS = frozenset(["usage", "id", "model", "choices", "message", "content", "data"])


def check_long(body: bytes) -> None:
    """Of long JSON the named members are read, and what is short is what a parser reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG_BYTES", 64)
        found, _ = long_json.read(body, LONG_KEYS)
        patch.setattr(long_json, "WHOLE_BYTES_MAX", 64)
        patch.setattr(long_json, "END_BYTES", 256)
        long_json.read(body, LONG_KEYS)
    value = json_values.strict_loads(body)
    if not isinstance(value, dict) or len(body) <= 64:
        return
    assert (found or {}).keys() == value.keys() & LONG_KEYS
    for name, member in (found or {}).items():
        whole = value[name]
        # Containers and floats may be written in any length.
        is_short = not isinstance(whole, dict | list | float) and len(json_values.dumps(whole)) <= 6
        assert not is_short or member == whole, name


def check_requests(body: bytes, dialect: str) -> None:
    """A request that can be read or asked in is not changed otherwise.

    Usage is asked for only in a body that a parser has accepted, so others need only raise nothing.
    """
    read_request(routes.Route(dialect=routes.DIALECTS[dialect]), body)
    asked = inject_usage_option(body)
    said = json_values.loads(body)
    if asked is not None and said:
        options = said.get("stream_options") or {}
        expected = {**said, "stream_options": {**options, "include_usage": True}}
        assert json_values.dumps(_sorted(json_values.loads(asked))) == json_values.dumps(
            _sorted(expected)
        )
    is_refusal(400, body, proven=False)


def _sorted(said: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """The members of a request and its options by name: what is inserted comes before the others."""
    found = {**(said or {})}
    if isinstance(found.get("stream_options"), dict):
        found["stream_options"] = dict(sorted(found["stream_options"].items()))
    return sorted(found.items())


def check_metering(body: bytes, cuts: list[int], dialect: str, content_type: str) -> None:
    """Nothing raises, everything that is asked of a meter has an answer, and the cuts mean nothing.

    Only an estimate of broken text may hang on them, and whether an id is noticed to change where
    another frame of the run repeats the old one twice.
    """

    def read(chunks: list[bytes]) -> tuple[Any, ...]:
        meter = Answer(routes.DIALECTS[dialect], content_type=content_type)
        for chunk in chunks:
            meter.feed(chunk)
        meter.end()
        meter.facts.rare.id_unstable = False
        assert meter.usage_json is None or meter.facts.usage is not None
        assert 0 <= meter.frames <= len(body)
        return picture(meter)[:-1]

    assert read(pieces(body, cuts)) == read([body] if body else [])


def check_all(rng: random.Random, body: bytes) -> None:
    """Every step on one body."""
    cuts = [rng.randrange(1, len(body) + 2) for _ in range(rng.randrange(6))]
    dialect = rng.choice(DIALECTS)
    check_framings(body, cuts)
    check_stripping(body, cuts)
    check_long(body)
    check_requests(body, dialect)
    check_metering(body, cuts, dialect, rng.choice(CONTENT_TYPES))
    if rng.random() < 0.2:
        check_decoding(body, cuts, rng.choice(ENCODINGS))
