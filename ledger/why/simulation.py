"""Pure. What requests would read from a prompt cache, by the rules that are documented for a model.

A prefix is as many tokens as the provider counted when a request ended with it; of any other, its
share of the request's input by bytes. Nobody else's requests are known, nor when a provider drops a
prefix early.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from ledger.model.segments import HOUR_ASKED
from ledger.why.cache import AskedRequest, marks
from ledger.why.caches import cache_of

PREFIXES_MAX = 200_000
"""Prefixes that are remembered, about 150 bytes each; the longest unused is forgotten first."""


type _Owned = tuple[str | None, bytes]
"""Who asked, and a prefix."""


class Breakpoints(StrEnum):
    """Which breakpoints requests have, where a model wants some."""

    AS_SENT = "as sent"
    ON = "on"
    """Those that were sent, and one at the end."""
    OFF = "off"
    """None, and nothing is cached."""


class Cached(NamedTuple):
    """The tokens of a request that are read from the cache, and written to it."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    """Of the written."""


class _CachedPrefix(NamedTuple):
    used_at: datetime
    lifetime: timedelta


class Simulation:
    """The cache of one model. Requests are asked in the order of their time."""

    def __init__(self, model: str, breakpoints: Breakpoints) -> None:
        self._model = model
        self._breakpoints = breakpoints
        self._entries: OrderedDict[_Owned, _CachedPrefix] = OrderedDict()
        self._tokens: OrderedDict[_Owned, int] = OrderedDict()
        """How many tokens a prefix is, by the provider's count."""
        self._accounts: dict[str | None, str] = {}
        """Key -> the account that was named last with it."""

    def ask(self, asked: AskedRequest) -> Cached:
        """What the next request reads and writes."""
        if self._breakpoints is Breakpoints.OFF or not asked.segments.parts:
            return Cached()
        cache = cache_of(asked.dialect, self._model, asked.opened_at)
        if asked.account:
            self._accounts[asked.key] = asked.account
        owner = self._accounts.get(asked.key, asked.key)
        prefixes = asked.segments.prefixes()
        own = marks(asked.segments)
        # The tokens of each prefix: as counted before, or by its share of the bytes.
        total = asked.input_tokens
        bytes_all = sum(each.size for each in asked.segments.parts) or 1
        _remember(self._tokens, (owner, prefixes[-1]), total)
        cached = asked.read_tokens + asked.write_tokens
        if cached and own and asked.cache.breakpoints:
            _remember(self._tokens, (owner, prefixes[own[-1][0]]), cached)
        tokens: list[int] = []
        size = 0
        for part, prefix in zip(asked.segments.parts, prefixes, strict=True):
            size += part.size
            counted = self._tokens.get((owner, prefix))
            share = total * size // bytes_all if counted is None else min(counted, total)
            tokens.append(max(share, tokens[-1] if tokens else 0))
        if not cache.breakpoints:
            longest = asked.segments.lifetime
            ends = [*own, (len(prefixes) - 1, longest)]
            if not cache.ends:
                ends = [(at, longest) for at in range(len(prefixes))]
        elif self._breakpoints is Breakpoints.ON:
            ends = [*own, (len(prefixes) - 1, max((ttl for _, ttl in own), default=1))]
        else:
            ends = own
        places = set(range(len(prefixes)))
        if cache.breakpoints:
            places = {
                at for end, _ in ends for at in range(end, max(-1, end - cache.look_back), -1)
            }
        # The longest prefix that is in the cache is read, and so used again.
        read = 0
        for at in sorted(places, reverse=True):
            key = (owner, prefixes[at])
            entry = self._entries.get(key)
            if entry is not None and asked.opened_at - entry.used_at <= entry.lifetime:
                _remember(self._entries, key, entry._replace(used_at=asked.opened_at))
                read = tokens[at] // cache.step * cache.step
                break
        kept = [(at, ttl) for at, ttl in ends if tokens[at] >= cache.tokens_min]
        for at, ttl in kept:
            entry = _CachedPrefix(asked.opened_at, cache.lifetime(ttl))
            _remember(self._entries, (owner, prefixes[at]), entry)
        end = max((tokens[at] for at, _ in kept), default=0) // cache.step * cache.step
        write = max(0, end - read)
        ends_1h = max((tokens[at] for at, ttl in kept if ttl == HOUR_ASKED), default=0)
        return Cached(min(read, asked.input_tokens), write, min(write, max(0, ends_1h - read)))


def _remember[T](known: OrderedDict[_Owned, T], key: _Owned, value: T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > PREFIXES_MAX:
        known.popitem(last=False)
