"""Pure. What fills the input of requests, by session and agent.

The tokens of a part are its share by bytes of the provider's own figure for the whole input, so the
rows of a request add up to its input. No provider reports tokens by part.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ledger.model.money import PICOUSD_PER_USD
from ledger.model.segments import Kind, Segments, SegmentType

type _Key = tuple[str | None, str | None, str, str]


@dataclass(slots=True)
class _Sum:
    size: int = 0
    tokens: int = 0
    picousd: int | None = None


@dataclass(slots=True)
class _Group:
    requests: int = 0
    calls: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))


class Context:
    """Adds up requests."""

    def __init__(self) -> None:
        self._sums: dict[_Key, _Sum] = {}
        self._groups: dict[tuple[str | None, str | None], _Group] = {}

    def add(
        self,
        session: str | None,
        agent: str | None,
        segments: Segments,
        *,
        input_tokens: int,
        picousd: int | None,
    ) -> None:
        """Add a request; `picousd` is what its input was charged, None if that is not known."""
        group = self._groups.setdefault((session, agent), _Group())
        group.requests += 1
        sizes: dict[tuple[str, str], int] = defaultdict(int)
        for each in segments.parts:
            if each.kind is Kind.TOOLS:
                place = "tools", each.name
            elif each.type is SegmentType.TOOL_RESULT:
                place = "tool_results", each.name
            elif each.type is SegmentType.IMAGE:
                place = "images", each.name
            elif each.kind is Kind.SYSTEM:
                place = "system", "system"
            elif each.type is SegmentType.TOOL_CALL:
                place = "messages", "assistant"
            else:
                name = "older messages" if each.type is SegmentType.JOINED else each.name
                place = "messages", name
            sizes[place] += each.size
            if each.type is SegmentType.TOOL_CALL:
                group.calls[each.name].add(each.digest)
        places = list(sizes)
        tokens = _shares(input_tokens, [sizes[place] for place in places])
        money = _shares(picousd or 0, [sizes[place] for place in places])
        for place, share, cost in zip(places, tokens, money, strict=True):
            one = self._sums.setdefault((session, agent, *place), _Sum())
            one.size += sizes[place]
            one.tokens += share
            if picousd is not None:
                one.picousd = (one.picousd or 0) + cost

    def rows(self) -> Iterator[dict[str, object]]:
        """The rows, those with most tokens first. `calls` counts a tool's calls in the session,
        None for other parts; `unused` is whether a tool was never called."""
        for key, one in sorted(self._sums.items(), key=lambda item: (-item[1].tokens, str(item))):
            session, agent, part, name = key
            calls = None
            if part == "tools":
                calls = len(self._groups[session, agent].calls.get(name, ()))
            yield {
                "session": session,
                "agent": agent,
                "part": part,
                "name": name,
                "bytes": one.size,
                "tokens": one.tokens,
                "calls": calls,
                "list_value_usd": None if one.picousd is None else one.picousd / PICOUSD_PER_USD,
                "unused": None if calls is None else calls == 0,
            }

    def requests(self) -> int:
        """How many were added."""
        return sum(each.requests for each in self._groups.values())


def _shares(total: int, sizes: Sequence[int]) -> list[int]:
    """A total in proportion to sizes, in whole numbers that add up to it."""
    whole = sum(sizes)
    found, size, given = [], 0, 0
    for each in sizes:
        size += each
        end = total * size // whole if whole else 0
        found.append(end - given)
        given = end
    if found:
        found[-1] += total - given
    return found
