"""mitmproxy's HTTP layers do the same with the wrappers as without, whatever the two peers send.

mitmproxy's own tests of these layers are not in its package. So the layers are driven here as they
are there, without any socket: drawn requests and answers in drawn pieces, ends and resets at drawn
places, hooks that stream or change what passes. What is compared is everything that the layers ask
for: hooks, bytes to either side, connections opened and closed.
"""

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.addon.proxy.host.layers import HOOKS, Holding, Step, in_a_row, play, wrapped

pytestmark = pytest.mark.large

REQUESTS = (
    b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nb",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    b"rubbish\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx-t: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\ncontent-length: 99\r\n\r\nshort",
    b"rubbish\r\n\r\n",
)


@st.composite
def steps_of(draw: st.DrawFn) -> list[Step]:
    """Exchanges, one after the other, each in pieces, and perhaps an end before the end."""
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        for from_client, data in (
            (True, draw(st.sampled_from(REQUESTS))),
            (False, draw(st.sampled_from(ANSWERS))),
        ):
            cuts = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=3)))
            places = [0, *cuts, len(data)]
            pieces = [data[a:b] for a, b in itertools.pairwise(places)]
            steps += [Step(from_client, piece) for piece in pieces]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(steps)))
        steps.insert(at, Step(draw(st.booleans()), None))
    steps.append(Step(draw(st.booleans()), None))
    return steps


@settings(max_examples=100, deadline=None)
@given(steps_of(), st.sampled_from(HOOKS))
@example([Step(True, REQUESTS[0]), Step(False, ANSWERS[2])], "marks")
def test_the_layers_ask_for_the_same(steps: list[Step], kind: str) -> None:
    theirs = play(steps, kind)
    with wrapped():
        ours = play(steps, kind)
    assert in_a_row(ours) == in_a_row(theirs)


@settings(max_examples=100, deadline=None)
@given(steps_of(), st.sampled_from(HOOKS))
@example([Step(True, REQUESTS[0]), Step(False, ANSWERS[0])], "stream")
@example([Step(True, REQUESTS[2][:-1]), Step(False, ANSWERS[0]), Step(True, b"y")], "uploads")
def test_a_held_end_moves_behind_its_hook_and_nothing_else(steps: list[Step], kind: str) -> None:
    """Client and upstream get the same, in the same order."""
    theirs = play(steps, kind)
    with wrapped(Holding()):
        ours = play(steps, kind)

    def of_client(asked: list[tuple[object, ...]], *, is_client: bool) -> list[tuple[object, ...]]:
        return in_a_row([each for each in asked if (each[1] == "client") is is_client])

    for is_client in (True, False):
        assert of_client(ours, is_client=is_client) == of_client(theirs, is_client=is_client)


@pytest.mark.parametrize("cuts", [(5,), (2, 5), (1, 2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("comes_off", [False, True])
def test_what_completes_a_body_goes_on_behind_the_hook(
    cuts: tuple[int, ...], comes_off: bool
) -> None:
    """Also if the wrappers come off before the body has ended."""
    head, body = ANSWERS[0][:-5], ANSWERS[0][-5:]
    pieces = [body[a:b] for a, b in itertools.pairwise((0, *cuts))]
    with contextlib.ExitStack() as put_on:
        put_on.enter_context(wrapped(Holding()))

        def steps() -> Iterator[Step]:
            yield Step(True, REQUESTS[0])
            yield Step(False, head)
            if comes_off:
                put_on.close()
            yield from (Step(False, piece) for piece in pieces)

        asked = play(steps(), "stream")
    hook = [each[0] for each in asked].index("response")
    after = b"".join(each[2] for each in asked[hook:] if each[:2] == ("send", "client"))  # type: ignore[misc]
    assert after == pieces[-1]


def test_an_exchange_passes_through_the_driver() -> None:
    """What is compared is no empty list."""
    asked = play([Step(True, REQUESTS[2]), Step(False, ANSWERS[2])], "callable")
    sent = [each for each in asked if each[0] == "send"]
    assert [name for name, *_ in asked if name in ("request", "response")] == [
        "request",
        "response",
    ]
    assert b"body" in b"".join(data for _, to, data in sent if to == "server 0")  # type: ignore[misc]
    assert b"hello" in b"".join(data for _, to, data in sent if to == "client").replace(  # type: ignore[misc]
        b"\r\n3\r\n", b""
    )
