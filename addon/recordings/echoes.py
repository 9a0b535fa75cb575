"""Pure. Masks in an answer what its provider repeats of the request's credentials.

A 401 quotes the key that it refuses, and gateways write it into headers of their answers. Each
occurrence in a body is overwritten in its length, so that chunks stay as they were, and no name or
token is made of it; a header is left out, as the meter does. A body with a content-encoding is
decoded for it: a capture has it decoded, if it repeats a credential.
"""

import base64
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from addon.metering.attribution import REDACTED, credentials_of
from addon.metering.decoding import Decoder

PIECE_BYTES = 64 * 1024
"""Of an encoded body that is decoded at once."""


class Echoes:
    """The credentials of one request, in each form in which they are looked for."""

    __slots__ = ("_bytes", "_length_max", "_texts", "found", "secrets")

    def __init__(self, headers: Iterable[tuple[str, str]], url: str) -> None:
        """`headers` of the request, with their values."""
        self.secrets = credentials_of({name.lower(): value for name, value in headers}, url)
        self._texts = _forms(self.secrets)
        self._bytes = [each.encode("utf-8", "surrogateescape") for each in self._texts]
        self._length_max = max(map(len, self._bytes), default=0)
        self.found = False
        """Whether something was masked."""

    def masked_text(self, text: str) -> str:
        """The text without credentials."""
        for form in self._texts:
            if form in text:
                self.found = True
                text = text.replace(form, _mask(len(form)))
        return text

    def masked_fields(self, fields: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Headers, without the values that have credentials."""
        return [
            (name, value if self.masked_text(value) == value else REDACTED)
            for name, value in fields
        ]

    def masked(self, data: bytes | bytearray) -> bytes | bytearray:
        """The bytes without credentials; `data` itself if it has none."""
        for form in self._bytes:
            if form in data:
                self.found = True
                data = data.replace(form, _mask(len(form)).encode())
        return data

    def decoded(self, body: bytearray, encoding: str, *, bytes_max: int) -> bytearray | None:
        """The decoded body, which contains a credential; None if it contains none, or cannot be
        decoded. Raises OSError if it decodes to more than `bytes_max`."""
        pieces = self._pieces(body, encoding)
        if not any(form in piece for piece in pieces for form in self._bytes):
            return None
        found = bytearray()
        for piece in self._pieces(body, encoding):
            found += piece[self._length_max :]
            if len(found) > bytes_max:
                raise OSError(
                    f"an answer that repeats a key decodes to more than {bytes_max} bytes"
                )
        return found

    def _pieces(self, body: bytearray, encoding: str) -> Iterable[bytes]:
        """The decoded pieces, each behind the last bytes before it."""
        decoder = Decoder(encoding)
        before = bytes(self._length_max)
        for at in range(0, len(body), PIECE_BYTES):
            for piece in decoder.decode(bytes(body[at : at + PIECE_BYTES])):
                both = before + piece
                before = both[-self._length_max :]
                yield both


def _mask(length: int) -> str:
    """What stands for so many bytes: no name and no token has its first and last letters."""
    return REDACTED[:-1][:length].ljust(length, REDACTED[-1])


def _forms(secrets: Sequence[str]) -> list[str]:
    """The secrets as they are, percent-encoded, with JSON's escaped slashes, and the characters
    that are certain of each place in base64; the longest first, as one may contain another."""
    forms = dict.fromkeys(secrets)
    for secret in secrets:
        forms[quote(secret, safe="", errors="replace")] = None
        forms[secret.replace("/", "\\/")] = None
        data = secret.encode("utf-8", "surrogateescape")
        for before in range(3):
            groups = base64.b64encode(bytes(before) + data)[: (before + len(data)) // 3 * 4]
            text = groups[-(-before * 4 // 3) :].decode()
            forms[text] = forms[text.translate(_URL_SAFE)] = None
    return sorted(forms, key=len, reverse=True)


_URL_SAFE = str.maketrans("+/", "-_")
