"""Dialect x ask x cut x end x HTTP version, through a real mitmdump, against a bare one.

Every case is played twice: through a mitmdump that only streams, which shows what this client
gets without us, and through ours. The bodies must be equal, byte for byte; the upstream must have
been asked the same, but for what we add; and the ledger must hold one settled row with the right
outcome, figures and digests.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from tests.proxy import rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.client import Ending, Http1, Http2, Received
from tests.proxy.mitmdump import BARE, SCRIPTS, TEE, Mitmdump
from tests.proxy.pair import connect
from tests.proxy.upstream import Answer, End, Framing, Request, Upstream
from tests.proxy.wire import ASKED, Ask, Wire, asks
from tests.proxy.wires import WIRES

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(900)]

WORKERS = 6


class Cut(StrEnum):
    """How upstream cuts its frames into chunks."""

    FRAMES = "frames"
    RANDOM = "random"
    """At any byte; in ends in mid-stream, half a frame comes last."""
    BYTES = "bytes"


class How(StrEnum):
    """How an exchange ends."""

    COMPLETE = "complete"
    LENGTH = "complete, content-length"
    CLOSE = "complete, close"
    LEFT_AT_END = "client closes at end mark"
    LEFT = "client FIN"
    LEFT_RST = "client RST"
    CUT = "upstream FIN"
    CUT_RST = "upstream RST"
    CUT_GOAWAY = "upstream GOAWAY"
    CUT_CLOSE = "close-delimited FIN"
    CUT_CLOSE_RST = "close-delimited RST"
    ERROR_FRAME = "error frame"
    HTTP_ERROR = "HTTP 429"


class Http(StrEnum):
    """HTTP versions of the client and the upstream."""

    H1_H1 = "1.1 -> 1.1"
    H2_H1 = "2 -> 1.1"
    H1_H2 = "1.1 -> 2"
    H2_H2 = "2 -> 2"

    @property
    def client_is_h2(self) -> bool:
        return self in (Http.H2_H1, Http.H2_H2)

    @property
    def upstream_is_h2(self) -> bool:
        return self in (Http.H1_H2, Http.H2_H2)


_FRAMING = {
    How.LENGTH: Framing.LENGTH,
    How.CLOSE: Framing.CLOSE,
    How.CUT_CLOSE: Framing.CLOSE,
    How.CUT_CLOSE_RST: Framing.CLOSE,
    How.HTTP_ERROR: Framing.LENGTH,
}
LEAVING = {How.LEFT_AT_END, How.LEFT, How.LEFT_RST}
_CUTS = {How.CUT, How.CUT_RST, How.CUT_GOAWAY, How.CUT_CLOSE, How.CUT_CLOSE_RST}
_END = dict.fromkeys(LEAVING, End.HELD) | {
    How.CUT: End.FIN,
    How.CUT_RST: End.RST,
    How.CUT_GOAWAY: End.GOAWAY,
    How.CUT_CLOSE: End.FIN,
    How.CUT_CLOSE_RST: End.RST,
}
_OUTCOME = dict.fromkeys(_CUTS, "upstream_cut") | {
    How.COMPLETE: "complete",
    How.LENGTH: "complete",
    How.CLOSE: "complete",
    How.LEFT_AT_END: "complete",
    How.LEFT: "client_left",
    How.LEFT_RST: "client_left",
    How.ERROR_FRAME: "error_frame",
    How.HTTP_ERROR: "http_error",
}
_ONLY_HTTP1_UPSTREAM = {How.LENGTH, How.CLOSE, How.CUT_CLOSE, How.CUT_CLOSE_RST}
_IN_MID_STREAM = {How.LEFT, How.LEFT_RST, *_CUTS}


@dataclass(frozen=True, kw_only=True)
class Case:
    number: int
    wire: Wire
    ask: Ask
    cut: Cut
    how: How
    http: Http

    def __str__(self) -> str:
        return f"{self.wire.name} / {self.ask} / {self.cut} / {self.how} / HTTP {self.http}"

    @property
    def asked(self) -> bool | None:
        return ASKED[self.ask]

    @property
    def is_injected(self) -> bool:
        """Whether we ask in the client's name."""
        return self.wire.is_opt_in and self.ask is not Ask.ASKED

    def answer(self, *, asked: bool) -> Answer:
        """What upstream does for a request that asks for usage, or does not."""
        if self.how is How.HTTP_ERROR:
            return Answer(
                pieces=(self.wire.error_body,),
                status=429,
                content_type="application/json",
                framing=Framing.LENGTH,
            )
        return Answer(
            pieces=self._pieces(asked=asked),
            content_type=self.wire.content_type,
            framing=_FRAMING.get(self.how, Framing.CHUNKED),
            end=_END.get(self.how, End.PROPER),
        )

    def sent(self, *, asked: bool) -> bytes:
        """All that upstream sends."""
        return self.answer(asked=asked).body

    @property
    def tail(self) -> bytes:
        """The incomplete frame at the end of what upstream sends to our request, if any."""
        if self.how not in _IN_MID_STREAM or self.cut is not Cut.RANDOM or self.how in LEAVING:
            return b""
        return self._half(asked=self.is_injected or self.ask is Ask.ASKED)

    @property
    def is_stripped(self) -> bool:
        """Whether anything of what upstream sends is not for the client."""
        if not self.is_injected or self.how is How.HTTP_ERROR:
            return False
        ours = self.sent(asked=True).removesuffix(self.tail)
        return ours != self.sent(asked=False).removesuffix(self._unasked_tail)

    @property
    def _unasked_tail(self) -> bytes:
        return self._half(asked=False) if self.tail else b""

    @property
    def is_ended_by_closing(self) -> bool:
        """Whether the connection's close is as good an end as any on this wire: between frames."""
        if not self.wire.ends_by_closing or self.tail:
            return False
        return self.how is How.CUT_CLOSE

    @property
    def ending(self) -> Ending:
        """How a client sees it end through a proxy that only streams."""
        if self.how in LEAVING:
            return Ending.LEFT
        if self.http.client_is_h2:
            is_cut = self.how in (How.CUT, How.CUT_RST, How.CUT_GOAWAY)
            return Ending.RESET if is_cut else Ending.TERMINATED
        # HTTP/2 announces no length here. That a close is no proper one only the body can tell.
        is_framed = self.how in (How.COMPLETE, How.LENGTH, How.ERROR_FRAME, How.HTTP_ERROR)
        is_framed = is_framed and not self.http.upstream_is_h2
        return Ending.TERMINATED if is_framed else Ending.CLOSED

    @property
    def outcome(self) -> str:
        return "complete" if self.is_ended_by_closing else _OUTCOME[self.how]

    @property
    def figures(self) -> dict[str, Any]:
        """Columns of the row."""
        wire = self.wire
        match self.how:
            case How.COMPLETE | How.LENGTH | How.CLOSE | How.LEFT_AT_END:
                return {"usage_source": "reported", **wire.figures}
            case How.ERROR_FRAME:
                return {**wire.figures_cut, **wire.error_figures}
            case How.HTTP_ERROR:
                return {
                    "usage_source": "none",
                    "input_tokens": None,
                    "output_tokens": None,
                    "http_status": 429,
                    **wire.http_error_figures,
                }
            case _ if self.is_ended_by_closing:
                return {**wire.figures_cut, "usage_source": "none"}
            case _:
                return dict(wire.figures_cut)

    def _pieces(self, *, asked: bool) -> tuple[bytes, ...]:
        frames = self.wire.answer(asked=asked)
        if self.how in _IN_MID_STREAM:
            frames = frames[: self.wire.cut_after]
            if self.cut is Cut.RANDOM and self.how not in LEAVING:
                frames = (*frames, self._half(asked=asked))
        elif self.how is How.ERROR_FRAME:
            frames = (*frames[: self.wire.cut_after], self.wire.error_frame)
        body = b"".join(frames)
        match self.cut:
            case Cut.FRAMES:
                return frames
            case Cut.BYTES:
                return tuple(body[at : at + 1] for at in range(len(body)))
            case Cut.RANDOM:
                cuts = random.Random(self.number).sample(range(1, len(body)), 12)
                edges = [0, *sorted(cuts), len(body)]
                return tuple(body[start:end] for start, end in itertools.pairwise(edges))

    def _half(self, *, asked: bool) -> bytes:
        frame = self.wire.answer(asked=asked)[self.wire.cut_after]
        return frame[: len(frame) // 2]


def cases() -> Iterator[Case]:
    """The whole matrix, without the combinations that do not exist on the wire."""
    numbers = itertools.count(1)
    for wire, ask, cut, how, http in itertools.product(WIRES, Ask, Cut, How, Http):
        if ask is not Ask.NOT_ASKED and not wire.can_ask:
            continue
        if how in _ONLY_HTTP1_UPSTREAM and http.upstream_is_h2:
            continue
        if how is How.CUT_GOAWAY and not http.upstream_is_h2:
            continue
        if cut is Cut.BYTES and (how is not How.COMPLETE or http not in (Http.H1_H1, Http.H2_H2)):
            continue  # one stream in a thousand chunks says it; the other ends add nothing to it
        if cut is Cut.RANDOM and wire is not WIRES[0] and http in (Http.H2_H1, Http.H1_H2):
            continue  # how cuts and a change of version meet is the same on every wire
        if cut is not Cut.FRAMES and how is How.HTTP_ERROR:
            continue
        yield Case(number=next(numbers), wire=wire, ask=ask, cut=cut, how=how, http=http)


CASES = {case.number: case for case in cases()}


@dataclass
class Played:
    """What came of all cases."""

    received: dict[tuple[str, int], Received] = field(default_factory=dict)
    """By proxy (`tee` or `bare`) and case."""
    requests: dict[tuple[str, int], list[Request]] = field(default_factory=dict)
    by_case: dict[str, list[rows.Row]] = field(default_factory=dict)
    row_count: int = 0
    log: str = ""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("matrix")
    pem = make_certificate(folder)
    result = Played()

    def answer(request: Request) -> Answer:
        case = CASES[int(request.header("x-case") or "")]
        result.requests.setdefault((request.header("x-proxy") or "", case.number), []).append(
            request
        )
        return case.answer(asked=asks(request.body))

    with ExitStack() as running:
        plain = [running.enter_context(Upstream(answer)) for _ in range(2)]
        secure = [
            running.enter_context(Upstream(answer, tls=server_context(pem, http2=True)))
            for _ in range(2)
        ]
        upstreams = [*plain, *secure]
        # Of each pair, one upstream is known to want asking, and one not to.
        known = zip(upstreams, ["aivene", "opentoken"] * 2, strict=True)
        hosts = ",".join(f"127.0.0.1:{each.port}={provider}" for each, provider in known)
        proxies = {
            name: running.enter_context(
                Mitmdump(
                    folder / name,
                    upstreams=[each.url for each in upstreams],
                    script=script,
                    beside=[SCRIPTS / "h2_upstream.py"],
                    options={"ssl_verify_upstream_trusted_ca": str(pem), **options},
                )
            )
            for name, script, options in (
                ("bare", BARE, {}),
                ("tee", TEE, {"tee_hosts": hosts}),
            )
        }
        lanes: dict[tuple[str, Http, bool], list[Case]] = {}
        for case in CASES.values():
            for name in proxies:
                lanes.setdefault((name, case.http, case.wire.is_opt_in), []).append(case)
        with ThreadPoolExecutor(WORKERS) as pool:
            for (name, _, _), answers in zip(
                lanes,
                pool.map(lambda lane: play_lane(proxies[lane[0][0]], *lane), lanes.items()),
                strict=True,
            ):
                for number, received in answers.items():
                    result.received[name, number] = received
        ledger = proxies["tee"].ledger
        rows.eventually(lambda: rows.open_count(ledger) == 0)
        proxies["tee"].stop()
        result.by_case = rows.by_tag(ledger, "case")
        result.row_count = len(rows.exchanges(ledger))
        result.log = proxies["tee"].log
    return result


def play_lane(
    proxy: Mitmdump, lane: tuple[str, Http, bool], of_lane: list[Case]
) -> dict[int, Received]:
    """Play cases one after the other, on one connection for as long as it lasts."""
    name, http, is_opt_in = lane
    mode = (2 if http.upstream_is_h2 else 0) + (0 if is_opt_in else 1)
    client: Http1 | Http2 | None = None
    answers = {}
    for case in of_lane:
        if client is None:
            client = connect(proxy, mode, is_h2=http.client_is_h2)
        answers[case.number] = received = play(client, name, case)
        if received.ending is not Ending.TERMINATED:
            client.close()
            client = None
        elif isinstance(client, Http1):
            assert client.is_quiet(), f"bytes after the end of {case}"
    if client is not None:
        client.close()
    return answers


def play(client: Http1 | Http2, proxy: str, case: Case) -> Received:
    headers = [
        ("content-type", "application/json"),
        ("accept-encoding", "gzip, br"),
        ("x-case", str(case.number)),
        ("x-proxy", proxy),
        ("x-tokentee-tag", f"case={case.number}"),
        *case.wire.headers.items(),
    ]
    client.send("POST", case.wire.target, headers, case.wire.request(asked=case.asked))
    received = client.head()
    enough = len(case.sent(asked=case.ask is Ask.ASKED)) if case.how in LEAVING else None
    while enough is None or len(received.body) < enough:
        if not client.more(received):
            return received
    client.leave(received, rst=case.how is How.LEFT_RST)
    return received


def mistakes(played: Played, case: Case) -> Iterator[str]:
    """Everything in which a case came out other than it must."""
    ours, control = (played.received[name, case.number] for name in ("tee", "bare"))
    yield from mistakes_of_client(case, ours, control)
    yield from mistakes_of_request(played, case)
    found = played.by_case.get(str(case.number), [])
    if len(found) != 1 or found[0]["reading_count"] != 1:
        yield f"{len(found)} rows"
        return
    yield from mistakes_of_row(case, found[0], ours)


def mistakes_of_client(case: Case, ours: Received, control: Received) -> Iterator[str]:
    expected = {control.body}
    if case.is_injected and case.tail:
        # An incomplete event cannot be edited, so it is held; a connection that breaks offers no
        # moment to hand it out any more.
        frames = b"".join(case.wire.answer(asked=False)[: case.wire.cut_after])
        expected = {frames, frames + case.tail}
    if ours.body not in expected:
        yield f"client got {ours.body!r} instead of {control.body!r}"
    if ours.status != control.status:
        yield f"status {ours.status} instead of {control.status}"
    for who, received in (("ours", ours), ("bare", control)):
        if received.ending is not case.ending:
            yield f"{who} ended {received.ending} instead of {case.ending}"
    differing = set(ours.headers) ^ set(control.headers)
    if case.is_injected and case.how is How.LENGTH:
        # What is taken out makes the announced length wrong.
        length = ("content-length", str(len(case.sent(asked=False))))
        differing -= {length, ("transfer-encoding", "chunked")}
    if differing:
        yield f"headers differ in {sorted(differing)}"


def mistakes_of_request(played: Played, case: Case) -> Iterator[str]:
    ours, control = (played.requests[name, case.number] for name in ("tee", "bare"))
    if len(ours) != 1:
        yield f"upstream was asked {len(ours)} times"
        return
    expected = json.loads(control[0].body)
    ignored = {"x-proxy", "x-tokentee-tag", ":authority", "host"}
    if case.is_injected:
        expected["stream_options"] = {"include_usage": True}
        ignored |= {"content-length", "accept-encoding"}
    elif ours[0].body != control[0].body:
        yield f"upstream got {ours[0].body!r} instead of {control[0].body!r}"
    if json.loads(ours[0].body) != expected:
        yield f"upstream was asked {ours[0].body!r}"
    sent, passed = (
        {(name, value) for name, value in request.headers if name.lower() not in ignored}
        for request in (control[0], ours[0])
    )
    if sent != passed:
        yield f"request headers differ in {sorted(sent ^ passed)}"
    if ours[0].header("x-tokentee-tag") is not None:
        yield "our header went upstream"


def mistakes_of_row(case: Case, row: rows.Row, ours: Received) -> Iterator[str]:
    sent = case.sent(asked=case.is_injected or case.ask is Ask.ASKED)
    client_body = ours.body
    expected = {
        "state": "settled",
        "outcome": case.outcome,
        "degraded": None,
        "usage_asked": case.asked if case.wire.can_ask else None,
        "usage_injected": case.is_injected,
        "usage_stripped": case.is_stripped,
        **case.figures,
    }
    if case.how not in LEAVING:
        # What was under way when the client left is in the row, and not in its hands.
        expected |= {
            "response_bytes": len(sent),
            "upstream_digest": hashlib.sha256(sent).hexdigest(),
            "client_bytes": len(client_body),
            "client_digest": hashlib.sha256(client_body).hexdigest(),
        }
    for name, value in expected.items():
        if row[name] != value:
            yield f"{name} is {row[name]!r} instead of {value!r}"


@pytest.mark.parametrize("ask", list(Ask))
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_every_way_to_end(wire: Wire, ask: Ask, played: Played) -> None:
    """The client cannot tell, and the ledger is right, however the exchange goes."""
    wrong = []
    for case in CASES.values():
        if case.wire is wire and case.ask is ask:
            wrong += [f"{case}: {mistake}" for mistake in mistakes(played, case)]
    assert not wrong, f"{len(wrong)} mistakes, such as\n" + "\n".join(wrong[:12])


def test_no_row_too_many_and_none_left_over(played: Played) -> None:
    assert played.row_count == len(CASES)
    assert "waiting up to" not in played.log, "an exchange was still open when the proxy stopped"
    assert "Traceback" not in played.log


def test_framings_were_played() -> None:
    """The matrix holds every HTTP/1.1 framing, so that no column is empty by mistake."""
    framings = {case.answer(asked=False).framing for case in CASES.values()}
    assert framings == set(Framing)
