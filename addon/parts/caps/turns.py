"""Pure. What the earlier turns of a conversation say of the input of its next one.

A request that repeats an earlier one and adds to it takes as many tokens as that one did, and at
most one for each byte that is new. That holds where tokens are counted part by part, by the same
model with the same settings. So every member of both must be the same, but for what is read in
parts: messages, which may only be added, and the system prompt and tools, which may change.

Where the provider keeps the conversation (`previous_response_id`), the input of the response that
is named, its output, and the bytes of the request bound what the next one takes. Where it keeps the
reasoning alone, that took no more than all answers of the conversation.
"""

from collections import deque
from itertools import zip_longest
from operator import itemgetter
from typing import Any

from addon.parts.caps.bound import picture_tokens_of
from addon.parts.caps.limits import Limits, Turn
from ledger.model.exchange import Exchange
from ledger.model.segments import HASH_BYTES
from ledger.model.usage import Usage

EXACT = frozenset(
    {"openai", "azure.ai.openai", "azure.ai.inference", "anthropic", "aws.bedrock"}
    | {"gcp.gemini", "gcp.vertex_ai"}
)
"""Providers that count the whole input, also of what was in their cache. Servers of one's own
count what they like."""
PART_TOKENS = 64
"""Of the template around a part: roles, ids, and notes of the provider between parts."""
CONVERSATIONS_MAX = 2_000
"""The latest; each has up to `LATEST_MAX` requests of 64 KB at worst, and of 2 KB as a rule."""
LATEST_MAX = 4
"""Requests that are remembered of one conversation: it may have gone on in several ways."""


class _Conversation:
    def __init__(self) -> None:
        self.latest: deque[tuple[int, Turn, int]] = deque(maxlen=LATEST_MAX)
        """How long a request was, its parts, and the tokens that it took."""
        self.output_tokens = 0
        """Of all its answers."""


class Turns:
    """The latest requests, and what they took."""

    def __init__(self) -> None:
        self._conversations: dict[object, _Conversation] = {}
        """By where it goes, its settings and its first message."""
        self._responses: dict[object, int] = {}
        """The tokens of a response, in and out, by where it came from and its id."""

    def add(self, exchange: Exchange, usage: Usage, turn: Turn | None) -> None:
        """Remember what a request took."""
        taken, given = usage.input_tokens, usage.output_tokens
        if taken is None or given is None or exchange.provider not in EXACT:
            return
        if usage.tool_units or usage.further:  # more than the conversation was read
            return
        if exchange.response_id:
            _remember(self._responses, (_place_of(exchange), exchange.response_id), taken + given)
        if turn is not None:
            key = _key_of(exchange, turn)
            conversation = self._conversations.pop(key, None) or _Conversation()
            conversation.latest.append((len(turn.digests), turn, taken))
            conversation.output_tokens += given
            _remember(self._conversations, key, conversation)

    def input_of(self, exchange: Exchange, limits: Limits) -> int | None:
        """The most tokens that a request takes beside what a provider adds; None: no earlier one
        that it goes on from is known."""
        each_picture = picture_tokens_of(exchange.provider)
        if limits.response_before is not None:
            kept = self._responses.get((_place_of(exchange), limits.response_before))
            new = limits.input_bytes + limits.pictures * each_picture
            return None if kept is None else kept + new
        turn = limits.turn
        conversation = self._conversations.get(_key_of(exchange, turn)) if turn else None
        if turn is None or conversation is None:
            return None
        begun = [each for each in conversation.latest if turn.digests.startswith(each[1].digests)]
        if not begun:
            return None
        _, before, taken = max(begun, key=itemgetter(0))
        sizes = list(turn.sizes[len(before.sizes) :])
        if turn.head != before.head:
            pairs = zip_longest(turn.head, before.head)
            sizes += [part[1] for part, other in pairs if part and part != other]
        text = sum(sizes) - max(0, turn.picture_bytes - before.picture_bytes)
        pictures = max(0, turn.pictures - before.pictures)
        reasoning = conversation.output_tokens if turn.reasonings > before.reasonings else 0
        return taken + text + len(sizes) * PART_TOKENS + pictures * each_picture + reasoning


def _key_of(exchange: Exchange, turn: Turn) -> object:
    return _place_of(exchange), turn.rest, turn.digests[:HASH_BYTES]


def _place_of(exchange: Exchange) -> object:
    return exchange.origin, exchange.key_fingerprint, exchange.request_model


def _remember(found: dict[object, Any], key: object, value: object) -> None:
    found[key] = value
    if len(found) > CONVERSATIONS_MAX:
        del found[next(iter(found))]
