"""One way to feed every parser of bytes: whole, byte by byte, with bytes trailing, cut anywhere."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from addon.dialects.dialect import Dialect
from addon.dialects.facts import AnswerContext
from addon.framing.frame import Frame, Framing
from addon.metering.decoding import decoder_of
from addon.metering.meter import Meter
from addon.metering.tap import Tap
from addon.metering.troubles import Troubles

SSE = "text/event-stream"
JSON = "application/json"


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The data cut at these offsets; offsets outside of it are left out."""
    at = sorted({cut for cut in cuts if 0 < cut < len(data)})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True) if a < b]


def cuts_of(data: bytes) -> st.SearchStrategy[list[int]]:
    """A strategy for cuts that fall inside the data."""
    return st.lists(st.integers(1, max(1, len(data) - 1)), max_size=12)


class Answer:
    """An answer that passes a tap; what its meter says, as attributes."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        content_type: str = SSE,
        content_encoding: str = "",
        edits: bool = False,
        headers: Mapping[str, str] | None = None,
        provider: str = "",
        path_model: str | None = None,
        context: AnswerContext | None = None,
        **more: Any,
    ) -> None:
        """`context`, or what it is made of."""
        if context is None:
            context = AnswerContext(headers=headers or {}, provider=provider, path_model=path_model)
        self.troubles = Troubles()
        self.tap = Tap(
            Meter(dialect, context=context, **more),
            content_type=content_type,
            edits=edits,
            clock=lambda: 0.0,
            troubles=self.troubles,
            decoder=decoder_of(content_encoding),
        )

    def feed(self, data: bytes) -> bytes | list[bytes]:
        return self.tap.callable(data)

    def end(self) -> None:
        """A bug of ours is an error here, not a note on a row."""
        self.tap.end()
        assert not self.tap.has_stopped, self.troubles.text

    @property
    def trouble(self) -> str | None:
        return self.tap.trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tap.meter, name)


def metered(
    dialect: Dialect, body: bytes, content_type: str = SSE, *, size: int = 0, **more: Any
) -> Answer:
    """An answer that has been read, in pieces of a size."""
    answer = Answer(dialect, content_type=content_type, **more)
    for piece in pieces(body, range(0, len(body), size)) if size else [body]:
        answer.feed(piece)
    answer.end()
    return answer


class Framed(NamedTuple):
    """What a framing made of some bytes."""

    blocks: list[bytes]
    frames: list[Frame]
    lost: str | None


def frame(make: Callable[[], Framing], chunks: Sequence[bytes]) -> Framed:
    """Feed one framing, and hold it to its promises on the way."""
    framing = make()
    given = b""
    blocks: list[bytes] = []
    frames: list[Frame] = []

    def take(run: bytes) -> None:
        nonlocal given
        given += run
        split = framing.split(run)
        assert b"".join(split) == run
        assert all(split)
        blocks.extend(split)
        parsed = [framing.parse(block) for block in split]
        frames.extend(one for one in parsed if one is not None)

    fed = b""
    for chunk in filter(None, chunks):
        take(framing.feed(chunk))
        fed += chunk
        assert given + framing._held == fed
        assert framing.held_bytes == len(framing._held)
    take(framing.end())
    assert given == fed
    assert not framing._held
    return Framed(blocks, frames, framing.lost)


def frame_every_way(
    make: Callable[[], Framing], data: bytes, *, has_rubbish: bool = False
) -> Framed:
    """The frames of `data`, the same whether it comes whole, byte by byte or in threes.

    So are the blocks, but for rubbish between them, which is given out as it comes.
    """
    whole = frame(make, [data])
    for size in (1, 2, 3, 7):
        cut = frame(make, pieces(data, range(0, len(data), size)))
        assert cut[1:] == whole[1:], size
        assert has_rubbish or cut.blocks == whole.blocks, size
    return whole
