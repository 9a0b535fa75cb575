"""Edge (files). The lines of a plain or gzipped file, one at a time and bounded.

A capture file is many gzip members, one for each line. A member that is damaged costs its own
lines; reading goes on at the next member. A line that is too long is passed over in pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

LINE_BYTES_MAX = 96 * 1024 * 1024
"""An exchange of 32 MiB, which is the most that a capture holds, takes 43 MiB as base64, and the
captures of version 0.1 had no bound for the request beside it."""
PIECE_BYTES = 256 * 1024
READ_BYTES = 1024 * 1024
"""Read at a time. A long line is put together from pieces of this size."""
_TOO_LONG = f"longer than {LINE_BYTES_MAX >> 20} MiB: remove the line"
_MEMBER_BEGINS = b"\x1f\x8b\x08"
_GZIP = 31
"""zlib's window bits for gzip members."""

type Line = tuple[int, int, bytes | str]
"""Number from 1, bytes of the file read so far, and the line without its end, or why it cannot be
read."""


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file; empty ones are left out. Raises OSError."""
    with path.open("rb", buffering=READ_BYTES) as file:
        yield from _split(_inflated(file), file) if path.suffix == ".gz" else _plain(file)


def _plain(file: BinaryIO) -> Iterator[Line]:
    number = 1
    read_bytes = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        read_bytes += len(line)
        if len(line) <= LINE_BYTES_MAX:
            if not line.isspace():  # `strip` would copy megabytes
                yield number, read_bytes, line
        else:
            yield number, read_bytes, _TOO_LONG
            while line and not line.endswith(b"\n"):
                line = file.readline(PIECE_BYTES)
                read_bytes += len(line)
        number += 1


def _inflated(file: BinaryIO) -> Iterator[bytes | None]:
    """The content of all members; None where one is damaged or cut short."""
    member = zlib.decompressobj(_GZIP)
    has_begun = False
    data = b""
    while data or (data := file.read(PIECE_BYTES)):
        if not has_begun:
            data = data.lstrip(b"\0")  # padding between members is allowed
            if not data.startswith(_MEMBER_BEGINS[: len(data)]):
                yield None
                data = _next_member(file, data)
            if not data:
                continue
        has_begun = True
        try:
            while True:
                out = member.decompress(data, PIECE_BYTES)
                if out:
                    yield out
                data = member.unconsumed_tail
                # zlib may hold more output than it was asked for, with no input left.
                if member.eof or (not data and len(out) < PIECE_BYTES):
                    break
        except zlib.error:
            yield None
            member, has_begun = zlib.decompressobj(_GZIP), False
            data = _next_member(file, data[1:])
            continue
        if member.eof:
            data = member.unused_data
            member, has_begun = zlib.decompressobj(_GZIP), False
    if has_begun:
        yield None


def _next_member(file: BinaryIO, data: bytes) -> bytes:
    """What is left from the next member's first byte on; empty at the end of the file."""
    while True:
        at = data.find(_MEMBER_BEGINS)
        if at >= 0:
            return data[at:]
        more = file.read(PIECE_BYTES)
        if not more:
            return b""
        data = data[-2:] + more


def _split(pieces: Iterator[bytes | None], file: BinaryIO) -> Iterator[Line]:
    number = 1
    begun = bytearray()
    is_too_long = False
    for piece in pieces:
        if piece is None:
            yield number, file.tell(), "cut short: the gzip data is damaged here"
            number += 1
            begun.clear()
            is_too_long = False
            continue
        first, *others = piece.split(b"\n")
        if not is_too_long:
            begun += first
            is_too_long = len(begun) > LINE_BYTES_MAX
            if is_too_long:
                begun.clear()
        for line in others:
            if is_too_long:
                yield (
                    number,
                    file.tell(),
                    _TOO_LONG,
                )
            elif begun.strip():
                yield number, file.tell(), bytes(begun)
            number += 1
            begun = bytearray(line)
            is_too_long = False
    if is_too_long:
        yield number, file.tell(), _TOO_LONG
    elif begun.strip():
        yield number, file.tell(), bytes(begun)
