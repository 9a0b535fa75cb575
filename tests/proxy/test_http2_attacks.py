"""The attacks over HTTP/2, on the client's side and on upstream's, measured as in `arena`.

Frames that no library would send are made with hyperframe and written past the state machine. Each
client says what it got, which is compared with what it gets through a proxy without us. A few run by
default; `pytest -m "proxy and (nightly or not nightly)" tests/proxy/test_http2_attacks.py` runs all.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
import pytest
from h2.exceptions import ProtocolError
from hyperframe import frame as frames

from tests.conftest import Say
from tests.proxy import certificates
from tests.proxy.arena import ATTACK_SECONDS_MAX, Arena, check, params, running_arena, section
from tests.proxy.attack import CHAT, MESSAGES, PLAIN
from tests.proxy.attacks import normal_answer
from tests.proxy.mitmdump import Mitmdump

pytestmark = [pytest.mark.proxy, pytest.mark.nightly, pytest.mark.timeout(300)]

SECTION = section("HTTP/2 attacks")

SSE_EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'
QUIET_SECONDS = 4
"""How long a client waits for a proxy that sends nothing more."""
ANSWER_SECONDS_MAX = 60
"""How long it waits for an answer behind 90 others on a busy machine; it always comes."""
IDLE_SECONDS = 60
"""How long an upstream does."""
HEADERS_END = ["END_HEADERS"]


def headers_of(event: h2.events.RequestReceived | h2.events.ResponseReceived) -> dict[str, str]:
    """Text, as `header_encoding` has it; h2's types know only bytes."""
    return dict(cast("list[tuple[str, str]]", event.headers))


@dataclass
class Peer:
    """One side of an HTTP/2 connection: a state machine, and a socket to write past it."""

    socket: ssl.SSLSocket
    is_client: bool
    bodies: dict[int, bytes] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)
    requests: dict[int, dict[str, str]] = field(default_factory=dict)
    is_open: bool = True

    def __post_init__(self) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=self.is_client,
                header_encoding="utf-8",
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(2**30)
        self.encoder = hpack.Encoder()
        """Of header blocks that are written past the state machine."""
        self.flush()

    def flush(self) -> None:
        self.raw(self.h2.data_to_send())

    def raw(self, data: bytes | bytearray) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def send(self, *parts: frames.Frame) -> None:
        self.raw(b"".join(part.serialize() for part in parts))

    def ask(
        self, *more: tuple[str, str], attack: str, body: bytes = PLAIN, target: str = CHAT
    ) -> int:
        """A proper request; its stream."""
        stream = int(self.h2.get_next_available_stream_id())
        self.h2.send_headers(stream, request_headers(attack, target, *more))
        self.h2.send_data(stream, body, end_stream=True)
        self.flush()
        return stream

    def read(self, is_enough: Callable[[], bool], quiet_seconds: float = QUIET_SECONDS) -> None:
        """Take what comes, until it is enough, or nothing more does."""
        self.socket.settimeout(quiet_seconds if self.is_client else IDLE_SECONDS)
        while self.is_open and not is_enough():
            try:
                data = self.socket.recv(262_144)
                events = self.h2.receive_data(data) if data else []
            except (OSError, h2.exceptions.ProtocolError):
                data, events = b"", []
            self.is_open = bool(data)
            for event in events:
                self._note(event)
            self.flush()

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            self.statuses[event.stream_id] = headers_of(event)[":status"]
        elif isinstance(event, h2.events.RequestReceived):
            self.requests[event.stream_id] = headers_of(event)
        elif isinstance(event, h2.events.DataReceived):
            before = self.bodies.get(event.stream_id, b"")
            self.bodies[event.stream_id] = before + event.data
            if event.flow_controlled_length and event.stream_id not in self.ends:
                with contextlib.suppress(h2.exceptions.ProtocolError):
                    self.h2.increment_flow_control_window(
                        event.flow_controlled_length, event.stream_id
                    )
        elif isinstance(event, h2.events.StreamEnded):
            self.ends[event.stream_id] = "ended"
        elif isinstance(event, h2.events.StreamReset):
            self.ends[event.stream_id] = "reset"
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.is_open = False

    def answered(self, *streams: int, quiet_seconds: float = QUIET_SECONDS) -> bytes:
        """Status, body and end of streams, once all of them have ended."""
        self.read(lambda: all(stream in self.ends for stream in streams), quiet_seconds)
        return b"|".join(
            b"%s %s %s"
            % (
                self.statuses.get(stream, "-").encode(),
                self.bodies.get(stream, b""),
                self.ends.get(stream, "open").encode(),
            )
            for stream in streams
        )


def request_headers(attack: str, target: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", target),
        ("content-type", "application/json"),
        ("x-attack", attack),
        *more,
    ]


type Client = Callable[[Peer, str], bytes]
type Server = Callable[[Peer, int], None]


def one_request(peer: Peer, attack: str) -> bytes:
    return peer.answered(peer.ask(attack=attack))


def one_stream(peer: Peer, attack: str) -> bytes:
    return peer.answered(peer.ask(attack=attack, target=MESSAGES))


def with_headers(*headers: tuple[str, str]) -> Client:
    return lambda peer, attack: peer.answered(peer.ask(*headers, attack=attack))


def with_answer_headers(*headers: tuple[str, str]) -> Server:
    def serve(peer: Peer, stream: int) -> None:
        said = [(":status", "200"), ("content-type", "application/json"), *headers]
        peer.h2.send_headers(stream, said)
        peer.h2.send_data(stream, normal_answer(), end_stream=True)
        peer.flush()

    return serve


answer = with_answer_headers()
"""The normal one."""


def streaming(
    *parts: Callable[[int], frames.Frame], times: int = 1, end: Callable[[int], frames.Frame] | None
) -> Server:
    """Headers of an event stream, some frames so often, and an end of any kind."""

    def serve(peer: Peer, stream: int) -> None:
        said = [(":status", "200"), ("content-type", "text/event-stream")]
        peer.h2.send_headers(stream, said)
        peer.flush()
        peer.raw(b"".join(part(stream).serialize() for part in parts) * times)
        if end is not None:
            peer.send(end(stream))

    return serve


def data(
    payload: bytes = b"", *, ends: bool = False, pad: int = 0
) -> Callable[[int], frames.Frame]:
    flags = (["END_STREAM"] if ends else []) + (["PADDED"] if pad else [])
    return lambda stream: frames.DataFrame(stream, payload, flags=flags, pad_length=pad)


def reset(stream: int) -> frames.Frame:
    return frames.RstStreamFrame(stream, error_code=2)


def go_away(_stream: int) -> frames.Frame:
    return frames.GoAwayFrame(0, last_stream_id=0, error_code=2)


def ping(_stream: int = 0) -> frames.Frame:
    return frames.PingFrame(0, b"12345678")


def settings(_stream: int = 0) -> frames.Frame:
    return frames.SettingsFrame(0, settings={3: 100})


def window(stream: int) -> frames.Frame:
    return frames.WindowUpdateFrame(stream, window_increment=1)


def trailers(stream: int) -> frames.Frame:
    block = hpack.Encoder().encode([("x-trailer", "a"), ("x-usage", '{"usage":1}')])
    return frames.HeadersFrame(stream, block, flags=["END_HEADERS", "END_STREAM"])


def informational(stream: int) -> frames.Frame:
    block = hpack.Encoder().encode([(":status", "103"), ("link", "</a>")])
    return frames.HeadersFrame(stream, block, flags=HEADERS_END)


def flooding(part: Callable[[int], frames.Frame], times: int) -> Client:
    """A request, and frames of another kind around it."""

    def play(peer: Peer, attack: str) -> bytes:
        peer.raw(part(0).serialize() * times)
        stream = peer.ask(attack=attack)
        peer.raw(part(0).serialize() * times)
        return peer.answered(stream)

    return play


def rapid_reset(count: int, quiet_seconds: float = QUIET_SECONDS) -> Client:
    def play(peer: Peer, attack: str) -> bytes:
        for _ in range(count):
            stream = peer.h2.get_next_available_stream_id()
            peer.h2.send_headers(stream, request_headers(attack, CHAT))
            peer.h2.send_data(stream, PLAIN, end_stream=True)
            peer.h2.reset_stream(stream)
        peer.flush()
        return peer.answered(peer.ask(attack=attack), quiet_seconds=quiet_seconds)

    return play


def continuations(payload: bytes, times: int) -> Client:
    """A header block that does not end."""

    def play(peer: Peer, attack: str) -> bytes:
        block = peer.encoder.encode(request_headers(attack, CHAT))
        more = frames.ContinuationFrame(1, payload)
        peer.send(frames.HeadersFrame(1, block))
        peer.raw(more.serialize() * times)
        return peer.answered(1)

    return play


def bomb(peer: Peer, attack: str) -> bytes:
    """4 KB in the table of headers, named by one byte again and again."""
    block = peer.encoder.encode([*request_headers(attack, CHAT), ("x", "v" * 3_900)])
    index = peer.encoder.encode([("x", "v" * 3_900)])
    flags = ["END_HEADERS", "END_STREAM"]
    peer.send(frames.HeadersFrame(1, block + index * 8_000, flags=flags))
    return peer.answered(1)


def in_bytes(count: int, *, empty: int = 0) -> Client:
    """A request body of one byte a frame."""

    def play(peer: Peer, attack: str) -> bytes:
        body = PLAIN[:-1] + b" " * count + b"}"
        peer.h2.send_headers(1, request_headers(attack, CHAT))
        peer.flush()
        nothing = frames.DataFrame(1, b"").serialize() * empty
        single = [frames.DataFrame(1, body[at : at + 1]).serialize() for at in range(len(body))]
        peer.raw(
            b"".join(single) + nothing + frames.DataFrame(1, b"", flags=["END_STREAM"]).serialize()
        )
        return peer.answered(1)

    return play


def with_trailers(peer: Peer, attack: str) -> bytes:
    peer.h2.send_headers(1, request_headers(attack, CHAT))
    peer.h2.send_data(1, PLAIN)
    peer.h2.send_headers(1, [("x-trailer", "a")], end_stream=True)
    peer.flush()
    return peer.answered(1)


def closed_window(peer: Peer, attack: str) -> bytes:
    """Twenty answers are asked for, and there is no window for any."""
    peer.send(frames.SettingsFrame(0, settings={4: 0}))
    for _ in range(20):
        peer.ask(attack=attack, target=MESSAGES)
    peer.read(lambda: False)
    return b""


def window_of_bytes(peer: Peer, attack: str) -> bytes:
    """A window that opens by one byte at a time."""
    peer.send(frames.SettingsFrame(0, settings={4: 1}))
    stream = peer.ask(attack=attack, target=MESSAGES)
    peer.raw(window(stream).serialize() * 3_000)
    peer.read(lambda: len(peer.bodies.get(stream, b"")) >= 2_000)
    return peer.bodies.get(stream, b"")[:2_000]


@dataclass(frozen=True)
class Http2Attack:
    """What the client does, and how the upstream answers each request."""

    name: str
    client: Client = one_request
    _: KW_ONLY
    server: Server = answer
    is_compared: bool = True
    """Not where the moment at which a connection breaks decides how much arrives."""
    is_quick: bool = False


streams = partial(Http2Attack, client=one_stream)

MANY = tuple((f"x-h{number}", "v" * 20) for number in range(1_000))
ONE_MB = data(b"data: {}\n\n" * 1_600)
ENDS = data(ends=True)

ATTACKS = (
    # A client's
    Http2Attack("1 000 headers up", with_headers(*MANY)),
    Http2Attack("a header of 60 KB up", with_headers(("x-h", "v" * 60_000))),
    Http2Attack("3 000 cookies", with_headers(*[("cookie", "a=b")] * 3_000)),
    Http2Attack("1 000 tags", with_headers(*[("x-tokentee-tag", "a=b")] * 1_000)),
    Http2Attack("5 000 empty CONTINUATION", continuations(b"", 5_000)),
    Http2Attack(
        "CONTINUATION of 4 MB", continuations(b"\x00\x01a\x01b" * 200, 4_000), is_compared=False
    ),
    Http2Attack("a table entry named 8 000 times", bomb, is_quick=True),
    Http2Attack("1 000 requests that are reset", rapid_reset(1_000), is_compared=False),
    # Not quick: whether one read holds all of them is up to the network, and decides a turn's length.
    Http2Attack("90 requests that are reset", rapid_reset(90, ANSWER_SECONDS_MAX)),
    Http2Attack("20 000 PING up", flooding(ping, 10_000), is_compared=False),
    Http2Attack("10 000 SETTINGS up", flooding(settings, 5_000), is_compared=False),
    Http2Attack("20 000 WINDOW_UPDATE up", flooding(window, 10_000)),
    Http2Attack("a body of 10 000 DATA of one byte", in_bytes(10_000)),
    Http2Attack("20 000 empty DATA up", in_bytes(10, empty=20_000)),
    Http2Attack("trailers up", with_trailers, is_quick=True),
    Http2Attack(
        "20 answers and no window",
        closed_window,
        server=streaming(ONE_MB, times=4, end=ENDS),
        is_compared=False,
    ),
    Http2Attack(
        "a window that opens by single bytes", window_of_bytes, server=streaming(ONE_MB, end=ENDS)
    ),
    # An upstream's
    Http2Attack("1 000 headers down", server=with_answer_headers(*MANY)),
    streams(
        "20 000 DATA of one byte down",
        server=streaming(
            *(data(SSE_EVENT[n : n + 1]) for n in range(len(SSE_EVENT))), times=600, end=ENDS
        ),
    ),
    streams("20 000 empty DATA down", server=streaming(data(), times=20_000, end=ENDS)),
    streams(
        "2 000 DATA padded by 255", server=streaming(data(b"\n", pad=255), times=2_000, end=ENDS)
    ),
    streams("trailers down", server=streaming(data(SSE_EVENT), end=trailers), is_quick=True),
    streams("RST_STREAM down", server=streaming(data(SSE_EVENT), end=reset)),
    streams("GOAWAY down", server=streaming(data(SSE_EVENT), end=go_away)),
    streams("10 000 PING down", server=streaming(ping, times=10_000, end=ENDS), is_compared=False),
    streams(
        "5 000 SETTINGS down", server=streaming(settings, times=5_000, end=ENDS), is_compared=False
    ),
    streams("1 000 trailers down", server=streaming(data(b"\n"), end=trailers)),
    streams(
        "2 000 informational answers in a stream",
        server=streaming(informational, times=2_000, end=ENDS),
        is_compared=False,
    ),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}


def serve(connection: ssl.SSLSocket) -> None:
    """The upstream's side of one connection: each request gets the answer of its attack."""
    peer = Peer(connection, is_client=False)
    done: set[int] = set()
    while peer.is_open:
        peer.read(lambda: any(stream in peer.ends for stream in peer.requests.keys() - done))
        ended = [stream for stream in peer.requests if stream in peer.ends and stream not in done]
        if not ended and peer.is_open:
            continue
        for stream in ended:
            done.add(stream)
            name = peer.requests[stream].get("x-attack", "")
            with contextlib.suppress(h2.exceptions.ProtocolError):
                BY_NAME[name].server(peer, stream)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def hostile_upstream(context: ssl.SSLContext) -> Iterator[int]:
    """An upstream of frames made by hand; its port."""

    def accept() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            speaking.append(threading.Thread(target=speak, args=(accepted,)))
            speaking[-1].start()

    def speak(accepted: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ProtocolError),
            accepted,
            context.wrap_socket(accepted, server_side=True) as connection,
        ):
            serve(connection)

    speaking: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for each in (thread, *speaking):
        each.join(ATTACK_SECONDS_MAX)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("http2")
    context = certificates.server_context(certificates.make_certificate(folder), http2=True)
    with (
        hostile_upstream(context) as port,
        running_arena(folder, beside=f"https://127.0.0.1:{port}") as running,
    ):
        yield running


def play(attack: Http2Attack, proxy: Mitmdump) -> bytes:
    """What the client got."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(proxy.address(1), ATTACK_SECONDS_MAX) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        assert connection.selected_alpn_protocol() == "h2"
        got = attack.client(Peer(connection, is_client=True), attack.name)
    return got if attack.is_compared else b""


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(arena, attack, lambda proxy: play(attack, proxy), partial(say_at_end, SECTION))


def test_every_attack_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ATTACKS) >= 25
