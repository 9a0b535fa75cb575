"""Pure. Asks for usage in a request, and takes what that brings out of the answer again.

The answer to a request that asked differs from one that did not in three ways (OpenAI, "Streaming
responses", `stream_options.include_usage`; WIRE §2): an extra event whose `choices` is empty and
which carries the usage; or the usage as a key of an event that carries more; and a `"usage":null`
on every other event. The first is dropped whole, the other two lose that key and nothing else.
"""

import re
from collections.abc import Iterable

from addon.framing import json_values
from addon.framing.sse import SSE
from addon.usage_opt_in.json_members import Member, members, span_of

_ASK = b'"stream_options":{"include_usage":true}'
_ENVELOPE = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint"}
    | {"obfuscation", "provider", "p"}
)
"""Keys that every chunk of a stream has, padding keys included: beside them, a usage-only event
carries nothing."""
_NULL_USAGE = b',"usage":null'
_FLAT_TAIL = re.compile(
    rb'(?:,"[a-z_]{1,32}":(?:"[^"\\]{0,4096}"|null|true|false|\d{1,18})){0,4}\}\s*'
)
"""Flat members and the brace that closes the payload. A `,"usage":null` with no more than that
behind it is surely a member of the outermost object, and no parse is needed; OpenAI writes it so,
with `obfuscation` behind it or nothing."""


def ask(body: bytes) -> bytes | None:
    """The request body with usage asked for; None if it cannot be asked by splicing.

    The body must be a JSON object with something in it. A client's own `stream_options` are
    kept, and its `include_usage: false` becomes true: what the client then sees is still what
    false gives.
    """
    options = _last(members(body), b"stream_options") if b'"stream_options"' in body else None
    if options is None:
        brace = body.find(b"{")
        return body[: brace + 1] + _ASK + b"," + body[brace + 1 :] if brace >= 0 else None
    value = body[options.value : options.end]
    if value == b"null":
        return body[: options.start] + _ASK + body[options.end :]
    if not value.startswith(b"{"):
        return None
    inner = members(body, options.value)
    asked = _last(inner, b"include_usage")
    if asked is not None:
        return body[: asked.value] + b"true" + body[asked.end :]
    comma = b"," if inner else b""
    at = options.value + 1
    return body[:at] + b'"include_usage":true' + comma + body[at:]


class Stripper:
    """Takes asked-for usage out of an SSE answer. One per answer; bytes in any cut.

    A complete event goes on at once, an event that is not touched as the bytes it came in.
    """

    def __init__(self) -> None:
        self._framing = SSE()
        self._is_between_events = True
        self.removed: list[bytes] = []
        """Pieces taken out since the caller last emptied the list."""
        self.framed = b""
        """The events that the last `feed` completed, as upstream sent them."""

    @property
    def held(self) -> bytes:
        """The incomplete event that waits for its end."""
        return self._framing.held

    def feed(self, data: bytes) -> bytes:
        """What goes on to the client now."""
        is_one_event = 0 <= data.find(b"\n\n") == len(data) - 2 and b"\r" not in data
        if is_one_event and self._is_between_events:
            self.framed = data
            return self._strip_block(data)
        run = self.framed = self._framing.feed(data)
        self._is_between_events = not self._framing.is_holding
        return run if b'"usage"' not in run else self._strip(run)

    def end(self) -> bytes:
        """What is left at the end of the body."""
        run = self._framing.end()
        return run if b'"usage"' not in run else self._strip(run)

    def _strip(self, run: bytes) -> bytes:
        return b"".join(self._strip_block(block) for block in self._framing.split(run))

    def _strip_block(self, block: bytes) -> bytes:
        first = block.find(b'"usage"')
        if first < 0:
            return block
        at = block.rfind(_NULL_USAGE)
        if at == first - 1 and block.startswith(b"data:"):
            tail = block[at + len(_NULL_USAGE) :]
            if tail == b"}\n\n" or _FLAT_TAIL.fullmatch(tail):
                self.removed.append(_NULL_USAGE)
                return block[:at] + tail
        frame = self._framing.parse(block)
        payload = json_values.loads(frame.data) if frame else None
        if payload is None or "usage" not in payload:
            return block
        if is_usage_only(payload):
            kept = b"".join(_beside_the_event(block))
            self.removed.append(block if not kept else block[len(kept) :])
            return kept
        return self._without_usage(block)

    def _without_usage(self, block: bytes) -> bytes:
        brace = block.find(b"{")
        while True:
            found = members(block, brace)
            usage = _last(found, b"usage")
            if usage is None:
                return block
            start, end = span_of(usage, found)
            self.removed.append(block[start:end])
            block = block[:start] + block[end:]


def is_usage_only(payload: dict[str, object]) -> bool:
    """Whether an event exists for its usage alone: no choices, and nothing but the envelope."""
    return (
        not payload.get("choices")
        and isinstance(payload.get("usage"), dict)
        and all(key in _ENVELOPE or value is None for key, value in payload.items())
    )


def _beside_the_event(block: bytes) -> Iterable[bytes]:
    """Comment and retry lines of a dropped event: they are the connection's, not the event's.

    Only those that stand before its first field, where servers put keep-alives; they dispatch
    nothing on their own and need no blank line.
    """
    for line in block.splitlines(keepends=True):
        if not line.startswith((b":", b"retry")):
            return
        yield line


def _last(found: list[Member], key: bytes) -> Member | None:
    """The member that counts: parsers take the last of duplicate keys."""
    return next((member for member in reversed(found) if member.key == key), None)


def is_refusal(status: int, body: bytes, *, proven: bool) -> bool:
    """Whether an error answer to a request that we added to may be about what we added.

    `proven`: the upstream has answered such a request before. Then only an answer that names what
    we added counts. From an upstream that never has, any complaint about the request may be one:
    asking once more costs a client's own mistake a second refusal, not asking costs it its answer.
    """
    if status not in _REFUSAL_STATUSES:
        return False
    text = body.lower()
    if b"stream_options" in text or b"include_usage" in text:
        return True
    return not proven and status in (400, 422)


_REFUSAL_STATUSES = frozenset({400, 404, 405, 415, 422, 500, 501})
