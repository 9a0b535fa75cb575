"""The cases of the matrix: wire x ask x cut x end x HTTP versions, and what each must come to."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.proxy.client import Ending
from tests.proxy.upstream import Answer, End, Framing
from tests.proxy.wires import WIRES, Wire


class Ask(StrEnum):
    """What the client says about usage."""

    ASKED = "asked"
    NOT_ASKED = "not asked"
    REFUSED = "include_usage:false"


ASKED = {Ask.ASKED: True, Ask.NOT_ASKED: None, Ask.REFUSED: False}
"""What `Wire.request` is told of them."""
EVERY_ASK = [
    (wire, ask)
    for wire in WIRES
    # An upstream that must be asked: others are asked by their client.
    for ask in (Ask if wire.is_opt_in else [Ask.ASKED if wire.can_ask else Ask.NOT_ASKED])
]


class Cut(StrEnum):
    """How upstream cuts its frames into chunks."""

    FRAMES = "frames"
    RANDOM = "random"
    """At any byte; in ends in mid-stream, half a frame comes last."""
    BYTES = "bytes"


class How(StrEnum):
    """How an exchange ends."""

    COMPLETE = "complete"
    LENGTH = "complete, content-length"
    CLOSE = "complete, close"
    LEFT_AT_END = "client closes at end mark"
    LEFT = "client FIN"
    LEFT_RST = "client RST"
    CUT = "upstream FIN"
    CUT_RST = "upstream RST"
    CUT_GOAWAY = "upstream GOAWAY"
    CUT_CLOSE = "close-delimited FIN"
    CUT_CLOSE_RST = "close-delimited RST"
    ERROR_FRAME = "error frame"
    HTTP_ERROR = "HTTP 429"


class Http(StrEnum):
    """HTTP versions of the client and the upstream."""

    H1_H1 = "1.1 -> 1.1"
    H2_H1 = "2 -> 1.1"
    H1_H2 = "1.1 -> 2"
    H2_H2 = "2 -> 2"

    @property
    def client_is_h2(self) -> bool:
        return self in (Http.H2_H1, Http.H2_H2)

    @property
    def upstream_is_h2(self) -> bool:
        return self in (Http.H1_H2, Http.H2_H2)


_FRAMING = {
    How.LENGTH: Framing.LENGTH,
    How.CLOSE: Framing.CLOSE,
    How.CUT_CLOSE: Framing.CLOSE,
    How.CUT_CLOSE_RST: Framing.CLOSE,
    How.HTTP_ERROR: Framing.LENGTH,
}
_END = {
    How.LEFT_AT_END: End.HELD,
    How.LEFT: End.HELD,
    How.LEFT_RST: End.HELD,
    How.CUT: End.FIN,
    How.CUT_RST: End.RST,
    How.CUT_GOAWAY: End.GOAWAY,
    How.CUT_CLOSE: End.FIN,
    How.CUT_CLOSE_RST: End.RST,
}
_OUTCOME = {
    How.COMPLETE: "complete",
    How.LENGTH: "complete",
    How.CLOSE: "complete",
    How.LEFT_AT_END: "complete",
    How.LEFT: "client_left",
    How.LEFT_RST: "client_left",
    How.CUT: "upstream_cut",
    How.CUT_RST: "upstream_cut",
    How.CUT_GOAWAY: "upstream_cut",
    How.CUT_CLOSE: "upstream_cut",
    How.CUT_CLOSE_RST: "upstream_cut",
    How.ERROR_FRAME: "error_frame",
    How.HTTP_ERROR: "http_error",
}
_ONLY_HTTP1_UPSTREAM = {How.LENGTH, How.CLOSE, How.CUT_CLOSE, How.CUT_CLOSE_RST}
_IN_MID_STREAM = {
    How.LEFT,
    How.LEFT_RST,
    How.CUT,
    How.CUT_RST,
    How.CUT_GOAWAY,
    How.CUT_CLOSE,
    How.CUT_CLOSE_RST,
}
LEAVING = {How.LEFT_AT_END, How.LEFT, How.LEFT_RST}


@dataclass(frozen=True, kw_only=True)
class Case:
    number: int
    wire: Wire
    ask: Ask
    cut: Cut
    how: How
    http: Http

    def __str__(self) -> str:
        return f"{self.wire.name} / {self.ask} / {self.cut} / {self.how} / HTTP {self.http}"

    @property
    def asked(self) -> bool | None:
        return ASKED[self.ask]

    @property
    def is_injected(self) -> bool:
        """Whether we ask in the client's name."""
        return self.wire.is_opt_in and self.ask is not Ask.ASKED

    def answer(self, *, asked: bool) -> Answer:
        """What upstream does for a request that asks for usage, or does not."""
        if self.how is How.HTTP_ERROR:
            return Answer(
                pieces=(self.wire.error_body,),
                status=429,
                content_type="application/json",
                framing=Framing.LENGTH,
            )
        return Answer(
            pieces=self._pieces(asked=asked),
            content_type=self.wire.content_type,
            framing=_FRAMING.get(self.how, Framing.CHUNKED),
            end=_END.get(self.how, End.PROPER),
        )

    def sent(self, *, asked: bool) -> bytes:
        """All that upstream sends."""
        return self.answer(asked=asked).body

    @property
    def tail(self) -> bytes:
        """The incomplete frame at the end of what upstream sends to our request, if any."""
        if self.how not in _IN_MID_STREAM or self.cut is not Cut.RANDOM or self.how in LEAVING:
            return b""
        return self._half(asked=self.is_injected or self.ask is Ask.ASKED)

    @property
    def is_stripped(self) -> bool:
        """Whether anything of what upstream sends is not for the client."""
        if not self.is_injected or self.how is How.HTTP_ERROR:
            return False
        ours = self.sent(asked=True).removesuffix(self.tail)
        return ours != self.sent(asked=False).removesuffix(self._unasked_tail)

    @property
    def _unasked_tail(self) -> bytes:
        return self._half(asked=False) if self.tail else b""

    @property
    def is_ended_by_closing(self) -> bool:
        """Whether the connection's close is as good an end as any on this wire: between frames."""
        if not self.wire.ends_by_closing or self.tail:
            return False
        return self.how is How.CUT_CLOSE

    @property
    def ending(self) -> Ending:
        """How a client sees it end through a proxy that only streams."""
        if self.how in LEAVING:
            return Ending.LEFT
        if self.http.client_is_h2:
            is_cut = self.how in (How.CUT, How.CUT_RST, How.CUT_GOAWAY)
            return Ending.RESET if is_cut else Ending.TERMINATED
        # HTTP/2 announces no length here. That a close is no proper one only the body can tell.
        is_framed = self.how in (How.COMPLETE, How.LENGTH, How.ERROR_FRAME, How.HTTP_ERROR)
        is_framed = is_framed and not self.http.upstream_is_h2
        return Ending.TERMINATED if is_framed else Ending.CLOSED

    @property
    def outcome(self) -> str:
        return "complete" if self.is_ended_by_closing else _OUTCOME[self.how]

    @property
    def figures(self) -> dict[str, Any]:
        """Columns of the row."""
        wire = self.wire
        match self.how:
            case How.COMPLETE | How.LENGTH | How.CLOSE | How.LEFT_AT_END:
                return {"usage_source": "reported", **wire.figures}
            case How.ERROR_FRAME:
                return {**wire.figures_cut, **wire.error_figures}
            case How.HTTP_ERROR:
                return {
                    "usage_source": "none",
                    "input_tokens": None,
                    "output_tokens": None,
                    "http_status": 429,
                    **wire.http_error_figures,
                }
            case _ if self.is_ended_by_closing:
                return {**wire.figures_cut, "usage_source": "none"}
            case _:
                return dict(wire.figures_cut)

    def _pieces(self, *, asked: bool) -> tuple[bytes, ...]:
        frames = self.wire.answer(asked=asked)
        if self.how in _IN_MID_STREAM:
            frames = frames[: self.wire.cut_after]
            if self.cut is Cut.RANDOM and self.how not in LEAVING:
                frames = (*frames, self._half(asked=asked))
        elif self.how is How.ERROR_FRAME:
            frames = (*frames[: self.wire.cut_after], self.wire.error_frame)
        body = b"".join(frames)
        match self.cut:
            case Cut.FRAMES:
                return frames
            case Cut.BYTES:
                return tuple(body[at : at + 1] for at in range(len(body)))
            case Cut.RANDOM:
                cuts = random.Random(self.number).sample(range(1, len(body)), 12)
                edges = [0, *sorted(cuts), len(body)]
                return tuple(body[start:end] for start, end in itertools.pairwise(edges))

    def _half(self, *, asked: bool) -> bytes:
        frame = self.wire.answer(asked=asked)[self.wire.cut_after]
        return frame[: len(frame) // 2]


def cases() -> Iterator[Case]:
    """The whole matrix, without the combinations that do not exist on the wire."""
    numbers = itertools.count(1)
    for wire, ask, cut, how, http in itertools.product(WIRES, Ask, Cut, How, Http):
        if ask is not Ask.NOT_ASKED and not wire.can_ask:
            continue
        if how in _ONLY_HTTP1_UPSTREAM and http.upstream_is_h2:
            continue
        if how is How.CUT_GOAWAY and not http.upstream_is_h2:
            continue
        if cut is Cut.BYTES and (how is not How.COMPLETE or http not in (Http.H1_H1, Http.H2_H2)):
            continue  # one stream in a thousand chunks says it; the other ends add nothing to it
        if cut is not Cut.FRAMES and how is How.HTTP_ERROR:
            continue
        yield Case(number=next(numbers), wire=wire, ask=ask, cut=cut, how=how, http=http)
