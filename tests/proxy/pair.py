"""Ours and a bare mitmdump before one upstream, and the few steps that most tests take."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.proxy import rows
from tests.proxy.certificates import client_context
from tests.proxy.client import Http1, Http2, Received
from tests.proxy.mitmdump import BARE, Mitmdump
from tests.proxy.upstream import Answer, Request, Upstream
from tests.proxy.wire import Wire, asks
from tests.proxy.wires import WIRES

BY_NAME = {wire.name: wire for wire in WIRES}
OPENAI = BY_NAME["openai"]
ANTHROPIC = BY_NAME["anthropic"]
_tags = itertools.count(1)


@dataclass
class Pair:
    """`upstream.script` is each test's own."""

    upstream: Upstream
    tee: Mitmdump
    bare: Mitmdump | None = None
    seen: int = field(default=0)
    """Requests of earlier tests."""

    def requests(self) -> list[Request]:
        """What upstream has been asked since the last time."""
        new = self.upstream.requests[self.seen :]
        self.seen = len(self.upstream.requests)
        return new

    def row(self, tag: str) -> rows.Row:
        """The one row of an exchange whose end its client has seen: it is there by now."""
        (row,) = rows.by_tag(self.tee.ledger, "case").get(tag, [])
        return row

    def settled_row(self, tag: str) -> rows.Row:
        """The one row of an exchange that its client ended, once it is settled."""

        def is_settled() -> bool:
            found = rows.by_tag(self.tee.ledger, "case").get(tag, [])
            return bool(found) and all(row["state"] != "open" for row in found)

        assert rows.eventually(is_settled), rows.by_tag(self.tee.ledger, "case").get(tag)
        return self.row(tag)


@contextlib.contextmanager
def pair(
    folder: Path,
    *,
    provider: str | None = "aivene",
    with_bare: bool = True,
    options: Mapping[str, str] | None = None,
    beside: tuple[Path, ...] = (),
    behind: tuple[Path, ...] = (),
    environment: Mapping[str, str] | None = None,
    modes: tuple[str, ...] = (),
) -> Iterator[Pair]:
    """Both proxies before an upstream that ours takes for `provider`; None: it is not named.

    `beside` are scripts loaded before ours, `behind` after it; `modes` are further ones of ours.
    """
    with contextlib.ExitStack() as running:
        upstream = running.enter_context(Upstream(speak(OPENAI)))
        hosts = {"tee_hosts": f"127.0.0.1:{upstream.port}={provider}"} if provider else {}
        tee = Mitmdump(
            folder / "tee",
            upstreams=[upstream.url, *modes],
            options={**hosts, **(options or {})},
            beside=beside,
            arguments=[word for script in behind for word in ("-s", str(script))],
            environment=environment or {},
        )
        bare = Mitmdump(folder / "bare", upstreams=[upstream.url], script=BARE)
        yield Pair(
            upstream=upstream,
            tee=running.enter_context(tee),
            bare=running.enter_context(bare) if with_bare else None,
        )


def tee_before(upstream: Upstream, folder: Path) -> Mitmdump:
    """Ours alone, which takes the upstream for one that must be asked."""
    hosts = {"tee_hosts": f"127.0.0.1:{upstream.port}=aivene"}
    return Mitmdump(folder, upstreams=[upstream.url], options=hosts)


def connect(proxy: Mitmdump, index: int = 0, *, is_h2: bool) -> Http1 | Http2:
    """A client of one of its ports."""
    if not is_h2:
        return Http1(proxy.address(index))
    tls = client_context(proxy.authority, http2=True)
    return Http2(proxy.address(index), tls=tls, name="localhost")


def speak(wire: Wire, **more: Any) -> Any:
    """A script that answers in one wire format."""

    def script(request: Request) -> Answer:
        return Answer(
            pieces=wire.answer(asked=asks(request.body)), content_type=wire.content_type, **more
        )

    return script


def new_tag() -> str:
    return f"t{next(_tags)}"


def post(
    client: Http1 | Http2,
    wire: Wire,
    tag: str,
    *more: tuple[str, str],
    asked: bool | None = None,
    body: bytes | None = None,
    target: str | None = None,
    **send: Any,
) -> None:
    """Send one request; `asked`, where there is no `body`: whether its client asks for usage."""
    body = wire.request(asked=asked) if body is None else body
    client.send("POST", target or wire.target, headers_for(wire, tag, *more), body, **send)


def headers_for(wire: Wire, tag: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        ("content-type", "application/json"),
        ("x-tokentee-tag", f"case={tag}"),
        *wire.headers.items(),
        *more,
    ]


def exchange(
    proxy: Mitmdump,
    wire: Wire,
    tag: str,
    *more: tuple[str, str],
    asked: bool | None = None,
    body: bytes | None = None,
    prefix: str = "",
    **send: Any,
) -> Received:
    """One request on a connection of its own, and its whole answer.

    What is learned of an upstream holds for a path: a test that teaches takes a `prefix`.
    """
    with Http1(proxy.address()) as client:
        post(client, wire, tag, *more, asked=asked, body=body, target=prefix + wire.target, **send)
        received = client.receive()
        assert client.is_quiet()
    return received
