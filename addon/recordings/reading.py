"""Edge. Reading recorded exchanges from files, as mitmproxy flows.

*.jsonl, *.jsonl.gz             one exchange a line: our captures, and test corpora
*.mitm, *.flow, *.flows, *.har  what mitmproxy saves, and what browsers export
*.sse, *.json, *.ndjson, *.eventstream   one answer's body; needs the URL it came from
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from mitmproxy import http
from mitmproxy.connection import Client, Server
from mitmproxy.exceptions import FlowReadException
from mitmproxy.io import FlowReader
from mitmproxy.net.http import status_codes

from ledger.model.errors import LedgerError

LINE_SUFFIXES = (".jsonl", ".jsonl.gz")
FLOW_SUFFIXES = (".mitm", ".flow", ".flows", ".har")
BODY_TYPES = {
    ".sse": "text/event-stream",
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".eventstream": "application/vnd.amazon.eventstream",
}
_NOT_IN_A_HOST = re.compile(r"[^A-Za-z0-9.:\[\]_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One recorded exchange. The flow's id and start are its own where the file gives them."""

    name: str
    flow: http.HTTPFlow
    is_llm: bool = True
    """False: the file holds any traffic, and only the path tells what is an LLM call."""
    cuts: tuple[tuple[int, int], ...] = ()
    """How the answer came: lengths, and microseconds since the piece before. Empty: not known."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands in a file and is no exchange, in words."""

    where: str
    why: str
    is_other_kind: bool = False
    """A file of the same name pattern that holds no recordings at all."""


def files_of(paths: Iterable[Path], *, bodies: bool) -> list[Path]:
    """The files to read, folders searched through, in a fixed order.

    `bodies`: also single bodies in folders; a body named itself is always read. Raises
    LedgerError for a path that is not there.
    """
    suffixes = (*LINE_SUFFIXES, *FLOW_SUFFIXES, *(BODY_TYPES if bodies else ()))
    found = []
    for path in paths:
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.is_file())
            found += sorted(file for file in inside if file.name.endswith(suffixes))
        elif path.is_file():
            found.append(path)
        else:
            raise LedgerError(f"{path}: no such file or folder")
    return found


def read(path: Path, *, url: str | None) -> Iterator[Recorded | Unreadable]:
    """The exchanges of a file. `url`: where a single body came from."""
    if path.name.endswith(LINE_SUFFIXES):
        return _lines(path)
    if path.suffix in BODY_TYPES:
        return iter([_body(path, url)])
    return _flows(path)


def _lines(path: Path) -> Iterator[Recorded | Unreadable]:
    number = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(file, 1):
                item = _line(line, path, number)
                if number == 1 and isinstance(item, Unreadable):
                    yield Unreadable(str(path), "holds no recorded exchanges", is_other_kind=True)
                    return
                yield item
        except (EOFError, OSError, gzip.BadGzipFile) as error:
            # A capture whose writer was killed ends in half a member; the lines before it stand.
            yield Unreadable(f"{path}:{number + 1}", f"cut short: {error}")


def _line(line: bytes, path: Path, number: int) -> Recorded | Unreadable:
    where = f"{path}:{number}"
    try:
        value = json.loads(line)
        request, response = value["request"], value["response"]
        body = base64.b64decode(response["body_b64"], validate=True)
        headers = _headers(response.get("headers"))
        if not response.get("encoded"):
            # The body was decoded by whoever recorded it; the header tells how it had come.
            headers.pop("content-encoding", None)
        cuts = tuple((int(size), int(wait)) for size, wait in response.get("chunks") or [])
        started_at = value.get("started_at")
        started = datetime.fromisoformat(started_at) if started_at else _date_of(headers)
        flow = _flow(
            method=request["method"],
            url=request["url"],
            request_headers=_headers(request.get("headers")),
            request_body=_request_body(request),
            status=response.get("status"),
            response_headers=headers,
            response_body=body,
            started=started or _time_of(path),
            cuts=cuts,
        )
        flow.id = str(value.get("id") or _id_of(flow))
        name = str(value.get("name") or flow.id)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        return Unreadable(where, f"not a recorded exchange ({type(error).__name__}: {error})")
    return Recorded(name=name, flow=flow, cuts=cuts)


def _body(path: Path, url: str | None) -> Recorded | Unreadable:
    if url is None:
        return Unreadable(str(path), "a single body: say where it came from with --url")
    flow = _flow(
        method="POST",
        url=url,
        request_headers=http.Headers(),
        request_body=b"{}",
        status=200,
        response_headers=http.Headers(content_type=BODY_TYPES[path.suffix]),
        response_body=path.read_bytes(),
        started=_time_of(path),
    )
    flow.id = _id_of(flow)
    return Recorded(name=path.name, flow=flow)


def _flows(path: Path) -> Iterator[Recorded | Unreadable]:
    number = 0
    with path.open("rb") as file:
        try:
            for flow in FlowReader(file).stream():
                number += 1
                if isinstance(flow, http.HTTPFlow):
                    yield Recorded(name=flow.id, flow=flow, is_llm=False)
        except FlowReadException as error:
            yield Unreadable(f"{path}, flow {number + 1}", str(error))


def _flow(
    *,
    method: str,
    url: str,
    request_headers: http.Headers,
    request_body: bytes,
    status: int | None,
    response_headers: http.Headers,
    response_body: bytes,
    started: datetime,
    cuts: Sequence[tuple[int, int]] = (),
) -> http.HTTPFlow:
    start = started.timestamp()
    waits = [microseconds / 1_000_000 for _, microseconds in cuts] or [0.0]
    client = Client(peername=("127.0.0.1", 0), sockname=("127.0.0.1", 0), timestamp_start=start)
    flow = http.HTTPFlow(client, Server(address=None))
    flow.request = http.Request.make(method, _usable(url), request_body, request_headers)
    flow.request.timestamp_start = start
    if status is not None:
        # Not `Response.make`, which adds a content-length of its own.
        flow.response = http.Response(
            http_version=b"HTTP/1.1",
            status_code=status,
            reason=status_codes.RESPONSES.get(status, "").encode("ascii"),
            headers=response_headers,
            content=response_body,
            trailers=None,
            timestamp_start=start + waits[0],
            timestamp_end=start + sum(waits),
        )
    return flow


def _usable(url: str) -> str:
    """A URL that names a host: recordings mask theirs (`<API_BASE>/chat`, `x.<REGION>.example`)."""
    url = url.partition("#")[0]
    if "://" not in url:
        url = f"https://{url.lstrip('/')}"
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{_NOT_IN_A_HOST.sub('', host) or 'masked.invalid'}{slash}{path}"


def _headers(value: Any) -> http.Headers:
    pairs = (value or {}).items()
    return http.Headers(
        [
            (name.encode("latin-1", "replace"), str(text).encode("latin-1", "replace"))
            for name, text in pairs
        ]
    )


def _request_body(request: dict[str, Any]) -> bytes:
    if "body_b64" in request:
        return base64.b64decode(request["body_b64"], validate=True)
    body = request.get("body")
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _id_of(flow: http.HTTPFlow) -> str:
    """An id for an exchange that has none: of where it came from and what was answered, so that
    reading it again finds it (DESIGN §5)."""
    origin = f"{flow.request.scheme}://{flow.request.host}:{flow.request.port}"
    body = flow.response.raw_content if flow.response else None
    return hashlib.sha256(origin.encode() + b"\0" + (body or b"")).hexdigest()[:32]


def _date_of(headers: http.Headers) -> datetime | None:
    try:
        date = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return None
    return date.astimezone(UTC)


def _time_of(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
