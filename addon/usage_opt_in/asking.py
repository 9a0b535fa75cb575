"""Pure. Injects the option that asks for usage, and detects an answer that refuses it.

OpenAI, "Streaming responses": `stream_options.include_usage`.
"""

from addon.usage_opt_in.json_members import last_named, members

SCANNED_BYTES_MAX = 256 * 1024
"""A larger request that already has `stream_options` is left alone: finding them would need a scan
of the whole body on the event loop, and clients that set them also set `include_usage`."""
_OPTION = b'"stream_options":{"include_usage":true}'
"""Put first where the client has none."""
_TURNED_ON = b"true "
"""Within the client's own option. No writer of JSON puts a blank there, so it can be told from the
option above."""
_REFUSAL_STATUSES = frozenset({400, 404, 405, 415, 422, 500, 501})
REFUSAL_BYTES_MAX = 64 * 1024
"""The proxy does not hold back a longer error answer to see whether it refuses the option."""


def inject_usage_option(body: bytes) -> bytes | None:
    """The request body with the option injected; None if it cannot be spliced in.

    The body must be a JSON object with something in it. A client's own `stream_options` are kept,
    and its `include_usage: false` becomes true; the answer is stripped so that the client still
    sees the result of false.
    """
    is_named = b'"stream_options"' in body
    if is_named and len(body) > SCANNED_BYTES_MAX:
        return None
    options = last_named(members(body), b"stream_options") if is_named else None
    if options is None:
        brace = body.find(b"{")
        return _spliced(body, brace + 1, _OPTION + b",", brace + 1) if brace >= 0 else None
    value = body[options.value : options.end]
    if not value.startswith(b"{"):
        is_null = value == b"null"
        turned_on = b'"stream_options":{"include_usage":%b}' % _TURNED_ON
        return _spliced(body, options.start, turned_on, options.end) if is_null else None
    inner = members(body, options.value)
    asked = last_named(inner, b"include_usage")
    if asked is not None:
        return _spliced(body, asked.value, _TURNED_ON, asked.end)
    comma = b"," if inner else b""
    at = options.value + 1
    return _spliced(body, at, b'"include_usage":' + _TURNED_ON + comma, at)


def without_usage_option(body: bytes) -> bytes | None:
    """The client's body of one in which the option was injected, if that is certain; else None.

    It is where the option is the first member: no client has it there in these bytes.
    """
    start, brace, rest = body.partition(b"{" + _OPTION + b",")
    return start + b"{" + rest if brace and not start.strip() else None


def _spliced(body: bytes, start: int, new: bytes, end: int) -> bytes:
    """The body with other bytes from `start` to `end`. It may be long, so it is copied once."""
    view = memoryview(body)
    return b"".join((view[:start], new, view[end:]))


def may_refuse(status: int) -> bool:
    """Whether an answer with this status may refuse our injected option, so that it is held."""
    return status in _REFUSAL_STATUSES


def is_refusal(status: int, body: bytes, *, proven: bool) -> bool:
    """Whether an error answer to a request with our injected option may be caused by that option.

    `proven`: the upstream has answered such a request before. Then only an error that names our
    option counts. From any other upstream, each complaint about the request may be a refusal: a
    retry costs a wrong request a second refusal, while no retry could cost a right request its
    answer.
    """
    if not may_refuse(status):
        return False
    text = body.lower()
    if b"stream_options" in text or b"include_usage" in text:
        return True
    return not proven and status in (400, 422)
