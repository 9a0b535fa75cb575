"""Content-encodings undone in pieces: Anthropic gzips its streams (vm0-ai/vm0#8884, litellm#37058)."""

import gzip
import zlib
from base64 import b64encode
from collections.abc import Callable
from functools import partial

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from addon.metering import decoding
from addon.metering.decoding import PIECE_BYTES_MAX, Decoder
from tests.addon.feeding import cuts_of, pieces
from tests.addon.linear import assert_linear
from tests.named import for_each
from tests.proxy.attack import zstd_bomb

BODY = b"".join(b'data: {"n":%d}\n\n' % n for n in range(2_000))


def in_two(compress):
    return lambda body: compress(body[:100]) + compress(body[100:])


ENCODINGS = [
    pytest.param("gzip", gzip.compress, id="gzip"),
    pytest.param("GZIP", gzip.compress, id="upper-case"),
    pytest.param("x-gzip", gzip.compress, id="x-gzip"),
    pytest.param("gzip", in_two(gzip.compress), id="gzip-members"),
    pytest.param("gzip", lambda body: gzip.compress(body) + bytes(8), id="gzip-padding"),
    pytest.param("deflate", zlib.compress, id="zlib"),
    pytest.param("deflate", partial(zlib.compress, wbits=-zlib.MAX_WBITS), id="raw-deflate"),
    pytest.param("br", brotli.compress, id="br"),
    pytest.param("zstd", zstandard.compress, id="zstd"),
    pytest.param("zstd", in_two(zstandard.compress), id="zstd-frames"),
    pytest.param("gzip, br", lambda body: brotli.compress(gzip.compress(body)), id="two-layers"),
    pytest.param("grpc-web-text", b64encode, id="base64"),
    pytest.param("grpc-web-text", in_two(b64encode), id="base64-parts"),
    pytest.param("identity", bytes, id="identity"),
    pytest.param("", bytes, id="none"),
]


def decoded(decoder: Decoder, chunks: list[bytes]) -> bytes:
    return b"".join(piece for chunk in chunks for piece in decoder.decode(chunk))


@for_each("encoding, compress", ENCODINGS)
@for_each("size", [1, 3, 1_000, 1_000_000])
def test_what_was_encoded_comes_back_in_any_cut(encoding: str, compress, size: int) -> None:
    encoded = compress(BODY)
    decoder = Decoder(encoding)
    assert decoded(decoder, pieces(encoded, range(0, len(encoded), size))) == BODY
    assert decoder.trouble is None
    assert decoder.is_whole


@given(
    encoding=st.sampled_from(
        [each.values for each in (*ENCODINGS[:1], *ENCODINGS[5:9], ENCODINGS[10])]
    ),
    body=st.binary(min_size=1, max_size=300),
    data=st.data(),
)
def test_a_beginning_is_not_whole(encoding, body: bytes, data: st.DataObject) -> None:
    """Also one that holds all of the content; and bytes behind an end are not known either."""
    name, compress = encoding
    encoded = compress(body)
    decoder = Decoder(name)
    decoded(decoder, [encoded[: data.draw(st.integers(1, len(encoded) - 1))]])
    assert not decoder.is_whole
    behind = Decoder(name)
    decoded(behind, [encoded, b"behind the end"])
    assert not behind.is_whole


def test_nothing_to_undo_is_said() -> None:
    assert Decoder("").is_identity
    assert Decoder("identity").is_identity
    assert not Decoder("gzip").is_identity


@for_each("encoding", ["compress", "gzip, rot13", "gzip,gzip,gzip,gzip"])
def test_an_encoding_that_is_not_known_is_trouble(encoding: str) -> None:
    decoder = Decoder(encoding)
    assert decoder.trouble is not None
    assert not decoder.is_identity
    assert decoded(decoder, [BODY]) == b""


@for_each("encoding, compress", ENCODINGS[:10])
def test_a_truncated_body_gives_what_it_holds(encoding: str, compress) -> None:
    """Streams are flushed after each event; here at least a prefix comes out, and no trouble."""
    encoded = compress(BODY)
    decoder = Decoder(encoding)
    assert BODY.startswith(decoded(decoder, [encoded[: len(encoded) // 2]]))
    assert decoder.trouble is None


@for_each("encoding", ["gzip", "deflate", "br", "zstd"])
def test_broken_bytes_are_trouble_and_not_an_exception(encoding: str) -> None:
    decoder = Decoder(encoding)
    decoded(decoder, [b"this was never compressed " * 40])
    assert decoder.trouble is not None
    assert "broken" in decoder.trouble
    assert decoded(decoder, [b"more"]) == b""


def test_events_come_out_as_they_are_flushed() -> None:
    deflater = zlib.compressobj(wbits=31)
    decoder = Decoder("gzip")
    for event in (b"data: one\n\n", b"data: two\n\n"):
        flushed = deflater.compress(event) + deflater.flush(zlib.Z_SYNC_FLUSH)
        assert decoded(decoder, [flushed]) == event


@for_each(
    "encoding, compress",
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("br", lambda body: brotli.compress(body, quality=4), id="br"),
        pytest.param("zstd", zstandard.compress, id="zstd"),
    ],
)
def test_a_bomb_is_handed_on_in_pieces_and_stopped(
    encoding: str, compress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "DECODED_BYTES_MAX", 20_000_000)
    monkeypatch.setattr(decoding, "RATIO_MAX", 10**6)
    decoder = Decoder(encoding)
    sizes = [len(piece) for piece in decoder.decode(compress(bytes(40_000_000)))]
    # zstandard has no limit on output: 32 bytes in can be 1 MB out, and no more.
    assert max(sizes) <= (17 if encoding == "zstd" else 2) * PIECE_BYTES_MAX
    assert sum(sizes) <= 20_000_000
    assert decoder.trouble is not None
    assert "decodes to more than" in decoder.trouble


@given(
    st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br"]),
    st.binary(max_size=200),
    st.data(),
)
def test_no_bytes_raise_and_cuts_mean_nothing(
    encoding: str, body: bytes, data: st.DataObject
) -> None:
    """Where the bytes are broken, how much comes out before that is seen may differ."""
    whole, cut = Decoder(encoding), Decoder(encoding)
    longest = decoded(whole, [body] if body else [])
    other = decoded(cut, pieces(body, data.draw(cuts_of(body))))
    if whole.trouble is None and cut.trouble is None:
        assert longest == other
    else:
        assert longest.startswith(other) or other.startswith(longest)


@for_each(
    "encoding, make",
    [
        pytest.param("gzip", lambda: gzip.compress(bytes(20_000_000)), id="gzip"),
        pytest.param("deflate", lambda: zlib.compress(bytes(20_000_000)), id="deflate"),
        pytest.param("br", lambda: brotli.compress(bytes(20_000_000), quality=4), id="br"),
        pytest.param("zstd", lambda: zstd_bomb(1_000), id="zstd"),
        pytest.param(
            "gzip, gzip", lambda: gzip.compress(gzip.compress(bytes(20_000_000))), id="twice"
        ),
        pytest.param(
            "gzip, gzip",
            lambda: gzip.compress(gzip.compress(b"") * 100_000),
            id="a-layer-that-gives-nothing",
        ),
    ],
)
def test_more_than_the_ratio_is_trouble(encoding: str, make: Callable[[], bytes]) -> None:
    decoder, body = Decoder(encoding), make()
    given = len(decoded(decoder, [body]))
    assert given <= decoding.FREE_BYTES + decoding.RATIO_MAX * len(body)
    assert decoder.trouble is not None
    assert "times its size" in decoder.trouble


@for_each("encoding", ["gzip", "br", "zstd"])
def test_a_stream_that_repeats_itself_is_no_bomb(encoding: str) -> None:
    # brotli's default quality takes most of a minute over these 13 MB
    encoders: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "br": partial(brotli.compress, quality=5),
        "zstd": zstandard.compress,
    }
    events = b"".join(
        b'data: {"id":"chatcmpl-7Qx","choices":[{"delta":{"content":"%d"}}]}\n\n' % n
        for n in range(200_000)
    )
    decoder = Decoder(encoding)
    assert decoded(decoder, [encoders[encoding](events)]) == events
    assert decoder.trouble is None


@pytest.mark.nightly
def test_the_work_for_empty_members_is_linear() -> None:
    member = gzip.compress(b"")
    assert_linear(lambda size: decoded(Decoder("gzip"), [member * size]), 3_000)


def test_the_inner_of_two_encodings_may_not_give_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer is counted by itself: what it gives is not handed to the next one."""
    monkeypatch.setattr(decoding, "DECODED_BYTES_MAX", 1_000)
    monkeypatch.setattr(decoding, "RATIO_MAX", 10**6)
    decoder = Decoder("br, gzip")
    body = gzip.compress(brotli.compress(bytes(range(256)) * 8, quality=0) + bytes(5_000))
    assert len(decoded(decoder, [body])) <= 1_000
    assert "decodes to more than 1000 bytes" in str(decoder.trouble)


def test_behind_an_inner_encoding_that_gave_too_much_nothing_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outer layer gives several pieces; the inner one is over at the first."""
    monkeypatch.setattr(decoding, "PIECE_BYTES_MAX", 100)
    monkeypatch.setattr(decoding, "RATIO_MAX", 10**6)
    decoder = Decoder("gzip, br")
    inner = b"this is not gzip" * 100
    assert decoded(decoder, [brotli.compress(inner)]) == b""
    assert "content-encoding is broken" in str(decoder.trouble)
