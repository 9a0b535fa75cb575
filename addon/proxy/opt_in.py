"""Edge. Adds the question for usage to a client's request, and takes it out where it is refused."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from addon.framing.long_json import without_pauses
from addon.metering import attribution
from addon.metering.messages import header_map
from addon.metering.opening import decoded_body_in_steps
from addon.proxy import capturing, flows
from addon.proxy.live import Live, OriginalRequest
from addon.usage_opt_in import asking

ENCODED_BYTES_MAX = 64 * 1024
"""A larger compressed request is not edited: compressing it again would block the event loop."""
EDITED_BYTES_MAX = 16 * 1024 * 1024
"""A larger request is not edited: searching and copying it would block the event loop (0.8 ms for
each MB), and both copies are kept until the exchange ends."""


def ask(live: Live) -> None:
    """Ask for usage in the client's name. Either all of the request is edited or nothing: what can
    fail is done before the first change."""
    request, asked = live.flow.request, live.asked
    headers = header_map(request.headers.fields)
    if request.stream or attribution.is_signed(headers, request.path):
        return
    is_encoded = "content-encoding" in headers
    bytes_max = ENCODED_BYTES_MAX if is_encoded else EDITED_BYTES_MAX
    if len(request.raw_content or b"") > bytes_max:
        return
    body = asked.body
    if asked.content_encoding:
        body = without_pauses(decoded_body_in_steps(body, asked.content_encoding, live.troubles))
    edited = asking.inject_usage_option(body.data) if body.is_whole and body.data else None
    if edited is None:
        return
    original = OriginalRequest(request.raw_content, request.headers.get("accept-encoding"))
    # An encoded answer cannot be edited as it passes.
    changed = {b"accept-encoding": b"identity"}
    if not is_encoded and "transfer-encoding" not in headers:
        changed[b"content-length"] = b"%d" % len(edited)
    fields = flows.with_headers(request.headers, changed)
    live.mark_injected()
    live.original = original
    request.headers.fields = fields
    if is_encoded:
        request.content = edited  # encoded as it was
    else:
        request.raw_content = edited


def revert_if_refused(live: Live, proven: AbstractSet[tuple[str, str]]) -> bool:
    """Remove the question if the answer refuses it; True: the request must be sent again."""
    response = live.flow.response
    opened = live.opened
    assert response is not None
    if live.original is None or not asking.is_refusal(
        response.status_code,
        response.raw_content or b"",
        proven=(opened.origin, opened.path) in proven,
    ):
        return False
    request = live.flow.request
    request.raw_content = live.original.body
    if "content-length" in request.headers:
        request.headers["content-length"] = str(len(live.original.body or b""))
    if live.original.accept_encoding is None:
        request.headers.pop("accept-encoding", None)
    else:
        request.headers["accept-encoding"] = live.original.accept_encoding
    live.original = None
    capturing.discard(live)
    live.revert_injection()
    return True
