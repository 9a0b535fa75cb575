"""Edge (files). The lines of a plain or gzipped file, one at a time and bounded.

A capture file is many gzip members, one for each line. A damaged member loses only its own lines;
reading continues at the next member. A line that is too long is skipped in pieces.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LINE_BYTES_MAX = 96 * 1024 * 1024
"""An exchange of 32 MiB, the bound of a capture, takes 43 MiB as base64, and the captures of
version 0.1 had no bound for the request."""
PIECE_BYTES = 256 * 1024
"""Looked through at a time."""
READ_BYTES = 1024 * 1024
"""Read at a time of a gzipped file."""
HEAD_BYTES = 1024
"""What is read of a long line at first: a capture's id stands there."""
_TOO_LONG = f"longer than {LINE_BYTES_MAX >> 20} MiB: remove the line"
_MEMBER_BEGINS = b"\x1f\x8b\x08"
_GZIP = 31
"""zlib's window bits for gzip members."""


class OpenFile:
    """A file that is open for as long as one of its entries may still be read."""

    __slots__ = ("descriptor",)

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def __del__(self) -> None:
        # There is none if it could not be opened.
        if (descriptor := getattr(self, "descriptor", None)) is not None:
            os.close(descriptor)

    def read(self, start: int, size: int) -> bytes:
        """So many bytes from `start` on; fewer at the end of the file."""
        os.lseek(self.descriptor, start, os.SEEK_SET)
        return os.read(self.descriptor, size)


@dataclass(frozen=True, slots=True)
class Text:
    """A line without its end. A long line of a plain file is read when it is asked for: of one
    that the ledger has, nothing but the beginning is ever copied."""

    head: bytes
    size: int
    file: OpenFile | None = None
    """Where the rest stands; None: the head is all of it."""
    start: int = 0

    def read(self) -> bytes:
        """The whole line. Raises OSError."""
        return self.head if self.file is None else self.file.read(self.start, self.size)


type Line = tuple[int, int, Text | str]
"""Number from 1, bytes of the file read so far, and the line, or why it cannot be read."""


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file; empty ones are left out. Raises OSError."""
    if path.suffix != ".gz":
        yield from _plain(OpenFile(path))
        return
    with path.open("rb", buffering=READ_BYTES) as file:
        yield from _split(_inflated(file), file)


def _plain(file: OpenFile) -> Iterator[Line]:
    """Find the lines' ends; nothing is copied of a line that does not lie in one piece."""
    number, start, at = 1, 0, 0
    while piece := file.read(at, PIECE_BYTES):
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            if start >= at:
                line: Text | str | None = _short(piece[begin:end])
            else:
                line = _long(file, start, at + end - start)
            if line is not None:
                yield number, at + end + 1, line
            number += 1
            begin = end + 1
            start = at + begin
        at += len(piece)
    if start < at and (line := _long(file, start, at - start)) is not None:
        yield number, at, line


def _short(line: bytes) -> Text | str | None:
    if len(line) > LINE_BYTES_MAX:
        return _TOO_LONG
    return Text(line, len(line)) if line and not line.isspace() else None


def _long(file: OpenFile, start: int, size: int) -> Text | str | None:
    """A line that is not read yet; None if there is nothing in it."""
    if size > LINE_BYTES_MAX:
        return _TOO_LONG
    head = file.read(start, min(size, HEAD_BYTES))
    if size <= HEAD_BYTES:
        return _short(head)
    is_empty = head.isspace() and file.read(start, size).isspace()
    return None if is_empty else Text(head, size, file, start)


def _inflated(file: BinaryIO) -> Iterator[bytes | None]:
    """The content of all members; None for one that is damaged or cut short."""
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
                # zlib may hold more output than requested, with no input left.
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
    """The rest of the input from the next member's first byte; empty at the end of the file."""
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
            elif line_text := _short(bytes(begun)):
                yield number, file.tell(), line_text
            number += 1
            begun = bytearray(line)
            is_too_long = False
    if is_too_long:
        yield number, file.tell(), _TOO_LONG
    elif line_text := _short(bytes(begun)):
        yield number, file.tell(), line_text
