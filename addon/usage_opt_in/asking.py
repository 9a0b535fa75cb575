"""Pure. Asking for usage in a request, and telling whether an answer refuses that.

OpenAI, "Streaming responses": `stream_options.include_usage`.
"""

from addon.usage_opt_in.json_members import last_named, members

SCANNED_BYTES_MAX = 256 * 1024
"""A larger request that has `stream_options` already is left alone: to find where they stand, all
of it would have to be read on the event loop, and clients that set them set `include_usage`."""
_OPTION = b'"stream_options":{"include_usage":true}'
_REFUSAL_STATUSES = frozenset({400, 404, 405, 415, 422, 500, 501})


def inject_usage_option(body: bytes) -> bytes | None:
    """The request body with usage asked for; None if it cannot be asked by splicing.

    The body must be a JSON object with something in it. A client's own `stream_options` are
    kept, and its `include_usage: false` becomes true: what the client then sees is still what
    false gives.
    """
    is_named = b'"stream_options"' in body
    if is_named and len(body) > SCANNED_BYTES_MAX:
        return None
    options = last_named(members(body), b"stream_options") if is_named else None
    if options is None:
        brace = body.find(b"{")
        return body[: brace + 1] + _OPTION + b"," + body[brace + 1 :] if brace >= 0 else None
    value = body[options.value : options.end]
    if not value.startswith(b"{"):
        is_null = value == b"null"
        return body[: options.start] + _OPTION + body[options.end :] if is_null else None
    inner = members(body, options.value)
    asked = last_named(inner, b"include_usage")
    if asked is not None:
        return body[: asked.value] + b"true" + body[asked.end :]
    comma = b"," if inner else b""
    at = options.value + 1
    return body[:at] + b'"include_usage":true' + comma + body[at:]


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
