"""Edge. mitmproxy's flows -> the values that are metered. Nothing else reads a flow's messages.

A flow that mitmproxy reads from a file (`mitmdump -nr`) comes this way too. One that it read from a
HAR file has a new random id at each reading; its id is derived as `tokentee replay` derives it.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from mitmproxy import http
from mitmproxy.proxy.mode_specs import ReverseMode

from addon.metering import attribution
from addon.metering.messages import (
    NOT_KNOWN,
    Body,
    End,
    RecordedTimes,
    Request,
    Response,
    header_map,
    recorded_body,
)
from addon.recordings.formats import saved_flows
from addon.recordings.formats.recorded import Origin, derived_id, known_time
from addon.recordings.formats.saved_flows import end_of_error

_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
"""A host name; anything else in SNI or a Host header is not taken over. Labels and dots share no
character, so that the search is linear."""
_OWN_PREFIX = b"x-tokentee-"
_TAG_HEADER = attribution.TAG_HEADER.encode()
NAME_LENGTH_MAX = 254
"""Characters of a host name, its last dot included (RFC 1035)."""
HOSTS_MAX = 256
"""Hosts of which it is remembered whether they are addresses; to parse one takes 4 µs."""

type Fields = tuple[tuple[bytes, bytes], ...]


def request_of(flow: http.HTTPFlow, own: Sequence[tuple[bytes, bytes]] = ()) -> Request:
    """The request of a live or a saved flow, to the host that the client meant. `own`: headers for
    us that were taken out of it."""
    request = flow.request
    host = host_meant(flow)
    fields = (*request.headers.fields, *own) if own else request.headers.fields
    headers = header_map(fields)
    body, data = NOT_KNOWN, request.raw_content  # None: mitmproxy streamed it, or saved none
    if data is not None and flow.live:
        body = Body(data)
    elif data is not None:
        body = recorded_body(saved_flows.utf8(data) if is_of_har(flow) else data, request.method)
    return Request(
        method=request.method,
        scheme=request.scheme,
        host=host,
        address=request.host if host != request.host else None,
        port=request.port,
        path=request.path,
        headers=headers,
        tag_headers=tuple(
            value.decode("utf-8", "surrogateescape")
            for name, value in fields
            if name.lower() == _TAG_HEADER
        )
        if attribution.TAG_HEADER in headers
        else (),
        body=body,
        began_at=datetime.fromtimestamp(request.timestamp_start, UTC),
    )


def response_of(response: http.Response) -> Response:
    """Status and headers of a response."""
    return Response(status=response.status_code, headers=header_map(response.headers.fields))


def times_of(flow: http.HTTPFlow) -> RecordedTimes:
    """When a saved response passed."""
    response = flow.response
    if response is None or is_of_har(flow):
        # mitmproxy makes up when the answer of a HAR began.
        ended = response.timestamp_end if response is not None else None
        return RecordedTimes(ended_at=known_time(ended))
    return RecordedTimes(
        first_byte_at=known_time(response.timestamp_start),
        ended_at=known_time(response.timestamp_end),
    )


def host_meant(flow: http.HTTPFlow) -> str:
    """The host that the client meant.

    Where the client gave only an address (SOCKS5 or CONNECT to an address; transparent, local and
    WireGuard mode) it is the name in its TLS handshake (SNI), else the Host header. In reverse
    mode the upstream is the operator's choice, and a client cannot name another.
    """
    request = flow.request
    if not is_address(request.host) or isinstance(flow.client_conn.proxy_mode, ReverseMode):
        return request.host
    header = request.host_header or ""
    for name in (flow.client_conn.sni, "" if header[:1] == "[" else header.partition(":")[0]):
        if name and len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name) and not is_address(name):
            return name.rstrip(".").lower()
    return request.host


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    return len(host) <= NAME_LENGTH_MAX and _is_address(host)


@functools.lru_cache(maxsize=HOSTS_MAX)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def take_own_headers(headers: http.Headers) -> tuple[tuple[bytes, bytes], ...]:
    """Take `x-tokentee-…` out of a request's headers: they are for us, not for upstream."""
    own = tuple([field for field in headers.fields if field[0][:11].lower() == _OWN_PREFIX])
    if own:
        headers.fields = tuple(field for field in headers.fields if field not in own)
    return own


def with_headers(headers: http.Headers, values: Mapping[bytes, bytes]) -> Fields:
    """The fields with these headers set, by lower-case name, each in the place of all that have its
    name.

    As `headers[name] = value`, for which mitmproxy walks and decodes all of them each time.
    """
    left = dict(values)
    fields = []
    for name, value in headers.fields:
        key = name.lower()
        if key not in values:
            fields.append((name, value))
        elif key in left:
            fields.append((name, left.pop(key)))
    return (*fields, *left.items())


# Saved flows


def is_of_har(flow: http.HTTPFlow) -> bool:
    """Whether mitmproxy read a saved flow from a HAR: it gives those a client without a port."""
    return not flow.live and flow.client_conn.peername == ("127.0.0.1", 0)


def has_answer(flow: http.HTTPFlow) -> bool:
    """Whether a saved flow holds enough to be read: mitmproxy saves no body that was streamed."""
    response = flow.response
    if response is None:
        return flow.error is not None
    if flow.websocket is not None:
        return True
    if response.status_code == 101 or response.raw_content is None:
        return response.raw_content is None and flow.error is not None
    return bool(response.raw_content) or not is_of_har(flow) or response.status_code >= 300


def answer_of(flow: http.HTTPFlow) -> bytes:
    """The body of a whole answer, with the bytes that `tokentee replay` reads from a HAR."""
    body = (flow.response.raw_content or b"") if flow.response is not None else b""
    return saved_flows.utf8(body) if is_of_har(flow) else body


def exchange_id_of(flow: http.HTTPFlow, request: Request) -> str:
    """The flow's id; of one from a HAR, the id that `tokentee replay` derives."""
    if not is_of_har(flow):
        return flow.id
    return derived_id(
        method=request.method,
        origin=Origin(scheme=request.scheme, host=request.host, port=request.port),
        path=request.path,
        request_body=request.body.data,
        response_body=answer_of(flow),
        started_at=request.began_at,
    )


def end_of(flow: http.HTTPFlow, *, broken_by_client: bool | None) -> End:
    """Which side ended a flow in an error. `broken_by_client` is None if that is unknown."""
    message = flow.error.msg if flow.error is not None else ""
    end = end_of_error(message)
    if end is End.STOPPED or broken_by_client is None:
        return end
    return End.CLIENT_LEFT if broken_by_client else End.UPSTREAM_BROKE
