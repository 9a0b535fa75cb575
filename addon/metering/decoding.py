"""Pure. Decodes content-encodings incrementally, in bounded pieces.

Anthropic gzips event streams, others answer in brotli or zstd; the meter reads a decoded copy while
the client gets upstream's bytes. The decoder accepts several consecutive gzip members and zstd
frames, and decodes the available part of truncated ones.

Three bounds stop a decompression bomb: no piece is larger than `PIECE_BYTES_MAX` (zstd: 1 MB); no
layer outputs more than `RATIO_MAX` times the body's bytes on the wire, beyond a free allowance; no
layer outputs more than `DECODED_BYTES_MAX`.
"""

import re
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Iterator

import brotli
import zstandard

PIECE_BYTES_MAX = 64 * 1024
"""Output per piece: the most bytes that one hostile chunk can make us hold at once."""
DECODED_BYTES_MAX = 1024 * 1024 * 1024
"""A day-long stream of text stays below this bound."""
RATIO_MAX = 100
"""Decoded bytes for each byte on the wire. Event streams, which repeat themselves most, reach 15
to 30 in gzip and 60 in brotli; zeros reach 1 000 in gzip and 30 000 in zstd."""
FREE_BYTES = 1024 * 1024
"""Bytes decoded before the ratio applies: the beginning of a stream may repeat itself more."""
LAYERS_MAX = 3
"""`content-encoding: gzip, br`: more than one layer is legal and never seen."""
_GZIP_WBITS = 31
"""zlib's window bits for gzip members."""
_GZIP_SLICE_BYTES = 4 * 1024
"""zlib copies the bytes after a member; with many small members in one chunk that is linear only
if the input comes in small slices."""
_WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""The zstd window that RFC 9659 allows on the web."""
_ZSTD_SLICE_BYTES = 32
"""zstandard has no output limit, and four bytes can decode to 128 KB: feed it small slices."""
_ZSTD_PIECE_BYTES = 16 * 1024
"""The output of those slices is joined up to this size."""

GRPC_WEB_TEXT = "grpc-web-text"
"""As an encoding: base64, in parts of which each may have its padding."""
_BASE64_PART = re.compile(rb"[^=]+=*")

Decode = Callable[[bytes], Iterator[bytes]]
Ended = Callable[[], bool]
"""Whether the bytes so far are a whole body of an encoding, with nothing behind it."""


def decoder_of(content_encoding: str) -> "Decoder | None":
    """What undoes a `content-encoding`; None: nothing is encoded."""
    decoder = Decoder(content_encoding) if content_encoding else None
    return None if decoder is None or decoder.is_identity else decoder


class Decoder:
    """Undoes one `content-encoding`; never raises."""

    __slots__ = ("_ends", "_given_bytes", "_layers", "_wire_bytes", "trouble")

    def __init__(self, content_encoding: str) -> None:
        self._wire_bytes = 0
        self.trouble: str | None = None
        """Why decoding stopped; None while all is well."""
        names = [name.strip().lower() for name in content_encoding.split(",")]
        names = [name for name in names if name and name != "identity"]
        unknown = [name for name in names if name not in _LAYERS]
        if unknown or len(names) > LAYERS_MAX:
            self.trouble = f"content-encoding {content_encoding[:64]!r} is not one we undo"
            names = []
        # The last encoding in the header was applied last.
        layers = [_LAYERS[name]() for name in reversed(names)]
        self._layers = [decode for decode, _ in layers]
        self._ends = [has_ended for _, has_ended in layers]
        self._given_bytes = [0] * len(self._layers)
        """Output bytes of each layer."""

    @property
    def is_identity(self) -> bool:
        """Whether there is no encoding."""
        return not self._layers and self.trouble is None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the layers' windows in memory: at most their output."""
        return sum(min(given, _WINDOW_BYTES_MAX) for given in self._given_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether every layer has come to its end, so that nothing is missing."""
        return self.trouble is None and all(has_ended() for has_ended in self._ends)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The decoded pieces of `data`; none after the first trouble.

        A piece is empty if a step of work had no output. A caller may pause between two pieces
        for any time. It must take all of them before it decodes more.
        """
        if self.trouble is not None:
            return
        self._wire_bytes += len(data)
        pieces: Iterator[bytes] = iter((data,))
        for number in range(len(self._layers)):
            pieces = self._through(number, pieces)
        try:
            yield from pieces
        except (zlib.error, brotli.error, zstandard.ZstdError, Base64Error) as error:
            self.trouble = f"the content-encoding is broken: {error}"

    def _through(self, number: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The output of a layer for the pieces of the previous layer."""
        layer = self._layers[number]
        for piece in pieces:
            for given in layer(piece):
                self._given_bytes[number] += len(given)
                given_bytes = self._given_bytes[number]
                if self.trouble is None and given_bytes > DECODED_BYTES_MAX:
                    self.trouble = f"a body that decodes to more than {DECODED_BYTES_MAX} bytes"
                elif (
                    self.trouble is None and given_bytes > FREE_BYTES + RATIO_MAX * self._wire_bytes
                ):
                    self.trouble = f"a body that decodes to more than {RATIO_MAX} times its size"
                if self.trouble is not None:
                    return
                yield given


def _base64_layer() -> tuple[Decode, Ended]:
    left = b""

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal left
        data = left + data
        whole = len(data) // 4 * 4
        left = data[whole:]
        for part in _BASE64_PART.findall(data[:whole]):
            yield a2b_base64(part)

    return decode, lambda: not left


def _gzip_layer() -> tuple[Decode, Ended]:
    """Any number of members, one after the other (RFC 1952 §2.2)."""
    inflater = zlib.decompressobj(_GZIP_WBITS)
    has_more = False

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal inflater, has_more
        for start in range(0, len(data), _GZIP_SLICE_BYTES):
            left = data[start : start + _GZIP_SLICE_BYTES]
            while left:
                if inflater.eof:
                    # Another member, or bytes that begin none: padding and garbage are ignored.
                    if not left.startswith(b"\x1f"):
                        has_more = has_more or bool(left.strip(b"\0"))
                        break
                    inflater = zlib.decompressobj(_GZIP_WBITS)
                yield inflater.decompress(left, PIECE_BYTES_MAX)
                left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail

    return decode, lambda: inflater.eof and not has_more


def _deflate_layer() -> tuple[Decode, Ended]:
    """`deflate` is zlib by RFC 9110, but some servers send raw deflate."""
    begun = b""
    inflater = None
    has_more = False

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal begun, inflater, has_more
        if inflater is None:
            begun += data
            if len(begun) < 2:
                return
            data = begun
            is_zlib = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            inflater = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        for start in range(0, len(data), _GZIP_SLICE_BYTES):
            left = data[start : start + _GZIP_SLICE_BYTES]
            while left and not inflater.eof:
                yield inflater.decompress(left, PIECE_BYTES_MAX)
                left = inflater.unconsumed_tail
            has_more = has_more or bool(left or inflater.unused_data)

    return decode, lambda: inflater is not None and inflater.eof and not has_more


def _brotli_layer() -> tuple[Decode, Ended]:
    inflater = brotli.Decompressor()
    has_more = False

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal has_more
        has_more = has_more or (inflater.is_finished() and bool(data))
        # The decoder keeps output beyond the limit; a call without input returns it.
        while not inflater.is_finished():
            piece = inflater.process(data, output_buffer_limit=PIECE_BYTES_MAX)
            if not piece:
                return
            yield piece
            data = b""

    return decode, lambda: inflater.is_finished() and not has_more


def _zstd_layer() -> tuple[Decode, Ended]:
    """Any number of frames, one after the other (RFC 8878 §3)."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    inflater = decompressor.decompressobj()

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal inflater
        given: list[bytes] = []
        given_bytes = 0
        for start in range(0, len(data), _ZSTD_SLICE_BYTES):
            left = data[start : start + _ZSTD_SLICE_BYTES]
            while left:
                if inflater.eof:
                    inflater = decompressor.decompressobj()
                given.append(inflater.decompress(left))
                given_bytes += len(given[-1])
                left = inflater.unused_data if inflater.eof else b""
            if given_bytes >= _ZSTD_PIECE_BYTES:
                yield b"".join(given)
                given.clear()
                given_bytes = 0
        yield b"".join(given)

    return decode, lambda: inflater.eof


_LAYERS: dict[str, Callable[[], tuple[Decode, Ended]]] = {
    GRPC_WEB_TEXT: _base64_layer,
    "gzip": _gzip_layer,
    "x-gzip": _gzip_layer,
    "deflate": _deflate_layer,
    "br": _brotli_layer,
    "zstd": _zstd_layer,
}
