"""Pure. Several chunks of a body in a row, as one piece that knows where they were cut."""

from collections.abc import Sequence
from typing import Self


class ChunkRun(bytes):
    """Several chunks in a row. `parts.fast.chunk_runs` makes them; nothing else does."""

    chunks: Sequence[bytes]

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> Self:
        """The run of these chunks, none of which is empty."""
        run = cls(b"".join(chunks))
        run.chunks = chunks
        return run


def chunks_of(data: bytes) -> Sequence[bytes]:
    """The chunks of a piece of a body."""
    return data.chunks if type(data) is ChunkRun else (data,)
