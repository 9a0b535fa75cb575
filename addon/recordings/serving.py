"""Edge (sockets). `tokentee replay --serve`: an upstream that serves recorded answers.

An answer has the recorded bytes, in the recorded chunks and at the recorded pace; a cut answer is
cut again. A request gets the first answer that was recorded for the same method, path and body, so
equal requests get equal answers in every run. A body with our question for usage in it is the same
as the client's own. If no recording has that body, it gets the first answer of the path. With
`in_turn` such answers follow one another in the order in which they were asked for, then again from
the first.

h11 reads and writes HTTP/1.1, so no recording can break the framing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import h11

from addon.metering.messages import End
from addon.recordings.formats.recorded import Fields, Recorded
from addon.recordings.metered import client_body

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 64 * 1024
WAIT_SECONDS_MAX = 60.0
"""A longer recorded pause is cut to this: clients give up long before."""
IDLE_SECONDS_MAX = 300.0
"""How long a connection may be silent."""
CONNECTIONS_MAX = 4_096
"""More than a load test opens, and fewer than the files that a process may have open."""
_HOP_BY_HOP = frozenset(
    {b"transfer-encoding", b"connection", b"keep-alive", b"content-length", b"trailer", b"upgrade"}
)
"""Headers about the framing of a message on one connection; this server frames anew."""
_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAnswer:
    """One recorded answer, ready to be sent."""

    status: int
    headers: Fields
    has_length: bool
    body: bytes
    cuts: tuple[tuple[int, int], ...]
    breaks_off: bool


class ServedAnswers:
    """Recorded answers by request. Exchanges without an answer and WebSockets are left out."""

    def __init__(self, recorded: Iterable[Recorded], *, in_turn: bool = False) -> None:
        self._in_turn = in_turn
        self._by_body: dict[tuple[str, str, bytes], list[ServedAnswer]] = defaultdict(list)
        self._by_path: dict[tuple[str, str], list[ServedAnswer]] = defaultdict(list)
        self._served: dict[int, int] = defaultdict(int)
        self._asked_by: dict[bytes, bytes] = {}
        """Digest of a body with our question for usage -> of the body as the client sent it."""
        recorded = sorted(recorded, key=lambda item: item.opened_at)
        for item in recorded:
            own = client_body(item, is_injected=item.usage_injected)
            if own is not None and own != item.request_body:
                self._asked_by[_digest(item.request_body)] = _digest(own)
        for item in recorded:
            if item.status is None or not 200 <= item.status <= 999:
                continue
            where = (item.method, _path_of(item.path))
            has_length = any(name.lower() == b"content-length" for name, _ in item.response_headers)
            breaks_off = item.end is End.UPSTREAM_BROKE
            has_no_body = item.status in _WITHOUT_BODY or item.method == "HEAD"
            body = b"" if has_no_body else item.response_body
            headers = []
            for one in item.response_headers:
                if one[0].lower() not in _HOP_BY_HOP:
                    with contextlib.suppress(h11.LocalProtocolError):  # of one that h11 refuses
                        h11.Response(status_code=200, headers=[one])
                        headers.append(one)
            answer = ServedAnswer(
                status=item.status,
                headers=tuple(headers),
                # Cut answers are chunked, so that their end is missing for any declared length.
                has_length=(has_length or has_no_body) and not breaks_off,
                body=body,
                cuts=item.cuts if sum(size for size, _ in item.cuts) == len(body) else (),
                breaks_off=breaks_off,
            )
            self._by_path[where].append(answer)
            self._by_body[*where, self._own(item.request_body)].append(answer)

    def __len__(self) -> int:
        return sum(map(len, self._by_path.values()))

    def to(self, method: str, path: str, body: bytes) -> ServedAnswer | None:
        """The answer to a request; None if nothing was recorded for its path."""
        where = (method, _path_of(path))
        found = self._by_body.get((*where, self._own(body))) or self._by_path.get(where)
        if not found:
            return None
        if not self._in_turn:
            return found[0]
        turn = self._served[id(found)]
        self._served[id(found)] += 1
        return found[turn % len(found)]

    def _own(self, body: bytes) -> bytes:
        """Digest of a body as the client sent it."""
        digest = _digest(body)
        return self._asked_by.get(digest, digest)


async def serve(answers: ServedAnswers, host: str, port: int, *, speed: float) -> asyncio.Server:
    """Listen. `speed`: 1 as recorded, 2 twice as fast, 0 without any pause. Raises OSError."""
    places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with places:
            connection = _Connection(reader, writer, answers, speed)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await connection.run()
            writer.close()

    return await asyncio.start_server(connected, host, port)


class _Connection:
    """One client's connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: ServedAnswers,
        speed: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = answers
        self._speed = speed
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def run(self) -> None:
        """Answer requests until either side ends the connection."""
        while True:
            try:
                request, body = await self._request()
            except h11.RemoteProtocolError as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    headers = [(b"connection", b"close"), (b"content-length", b"0")]
                    status = error.error_status_hint
                    self._write(h11.Response(status_code=status, headers=headers))
                    self._write(h11.EndOfMessage())
                    await self._writer.drain()
                return
            if request is None:
                return
            path = request.target.decode("latin-1")
            answer = self._answers.to(request.method.decode("ascii"), path, body)
            if answer is None:
                why = {"type": "not_recorded", "message": f"nothing was recorded for {path}"}
                answer = ServedAnswer(
                    status=404,
                    headers=((b"content-type", b"application/json"),),
                    has_length=True,
                    body=json.dumps({"error": why}).encode(),
                    cuts=(),
                    breaks_off=False,
                )
            is_over = await self._send(answer)
            if is_over or self._http.our_state is h11.MUST_CLOSE:
                return
            self._http.start_next_cycle()

    async def _request(self) -> tuple[h11.Request | None, bytes]:
        """The next request and its body; None at the end of the connection."""
        request: h11.Request | None = None
        pieces: list[bytes] = []
        size = 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    self._writer.write(self._http.send(go_on) or b"")
                async with asyncio.timeout(IDLE_SECONDS_MAX):
                    data = await self._reader.read(READ_BYTES)
                self._http.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return request, b"".join(pieces)
            else:  # the connection is closed
                return None, b""

    async def _send(self, answer: ServedAnswer) -> bool:
        """Send an answer; returns whether it ends the connection."""
        length = [(b"content-length", b"%d" % len(answer.body))] if answer.has_length else []
        framing = length or [(b"transfer-encoding", b"chunked")]
        self._write(h11.Response(status_code=answer.status, headers=[*answer.headers, *framing]))
        at = 0
        for size, wait in answer.cuts or ((len(answer.body), 0),):
            if self._speed and wait:
                await self._writer.drain()
                await asyncio.sleep(min(wait / 1_000_000 / self._speed, WAIT_SECONDS_MAX))
            piece = answer.body[at : at + size]
            at += size
            if piece:
                self._write(h11.Data(data=piece))
                await self._writer.drain()
        if answer.breaks_off:
            await self._writer.drain()
            return True
        self._write(h11.EndOfMessage())
        await self._writer.drain()
        return False

    def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._http.send(event) or b"")


def _path_of(path: str) -> str:
    return path.partition("?")[0]


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
