"""WebSocket sessions: one row per response, messages untouched, nothing kept."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.io import FlowReader
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from tests.proxy import rows
from tests.proxy.mitmdump import Mitmdump

pytestmark = pytest.mark.proxy

ENDS: list[int | None] = []
"""Codes of the close frames that held servers got; None: there was no frame."""


def answer_of(number: int) -> list[str]:
    """The server's messages of one Responses API response."""
    response = {"id": f"resp_{number}", "object": "response", "model": "gpt-5-mini-2025-08-07"}
    usage = {
        "input_tokens": 10 + number,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15 + number,
    }
    done = {**response, "status": "completed", "usage": usage}
    return [
        json.dumps({"type": "response.created", "response": {**response, "usage": None}}),
        *(
            json.dumps({"type": "response.output_text.delta", "delta": word, "item_id": "m"})
            for word in ("Hel", "lo ", "wörld")
        ),
        json.dumps({"type": "response.completed", "response": done}, indent=1),
    ]


def reset(broken: socket.socket, *, by_rst: bool) -> None:
    """End a connection without a close frame."""
    if by_rst:
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.shutdown(socket.SHUT_RD)  # the thread that reads lets go of it
        broken.close()
    else:
        broken.shutdown(socket.SHUT_RDWR)


def speak(connection: ServerConnection) -> None:
    number = 0
    for message in connection:
        if json.loads(message).get("type") != "response.create":
            continue
        number += 1
        for piece in answer_of(number):
            if "hold" in message and "created" not in piece:
                with pytest.raises(ConnectionClosed) as ended:
                    connection.recv(timeout=60)
                close = ended.value.rcvd
                ENDS.append(None if close is None else int(close.code))
                return
            if "cut" in message and "completed" in piece:
                connection.close()
                return
            if "break" in message and "completed" in piece:
                reset(connection.socket, by_rst="rst" in message)
                return
            connection.send(piece)


@contextmanager
def upstream() -> Iterator[int]:
    def refuse(connection: ServerConnection, request):
        return connection.respond(401, "no key") if "refused" in request.path else None

    with serve(speak, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mitmdump]:
    folder: Path = tmp_path_factory.mktemp("websocket")
    with upstream() as port:
        named, unnamed = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        hosts = {"tee_hosts": f"127.0.0.1:{port}=openai"}
        with Mitmdump(folder, upstreams=[named, unnamed], options=hosts) as running:
            yield running


def url(proxy: Mitmdump, path: str = "/v1/responses", upstream_number: int = 0) -> str:
    host, port = proxy.address(upstream_number)
    return f"ws://{host}:{port}{path}"


CREATE = json.dumps({"type": "response.create", "model": "gpt-5-mini", "input": "a secret prompt"})


def by_session(proxy: Mitmdump, session: str) -> list[dict[str, Any]]:
    return [row for row in rows.exchanges(proxy.ledger) if row["session_id"] == session]


def test_each_response_is_a_row_that_is_there_when_its_end_is(proxy: Mitmdump):
    headers = {"x-tokentee-session": "ws-1", "authorization": "Bearer sk-0123456789abcdef"}
    with connect(url(proxy), additional_headers=headers) as client:
        for number in (1, 2, 3):
            client.send(CREATE)
            assert [client.recv() for _ in range(5)] == answer_of(number)
            found = by_session(proxy, "ws-1")
            assert [row["response_id"] for row in found if row["state"] == "settled"] == [
                f"resp_{seen}" for seen in range(1, number + 1)
            ]
    found = by_session(proxy, "ws-1")
    assert len(found) == 3
    for number, row in enumerate(found, start=1):
        assert row["outcome"] == "complete"
        assert row["dialect"] == "openai.responses"
        assert row["request_model"] == "gpt-5-mini"
        assert (row["input_tokens"], row["cache_read_tokens"]) == (10 + number, 4)
        assert (row["output_tokens"], row["reasoning_tokens"]) == (5, 2)
        assert row["key_hint"] == "cdef"
    assert b"a secret prompt" not in proxy.ledger.read_bytes()


def test_a_response_that_upstream_cuts_is_settled_as_cut(proxy: Mitmdump):
    with connect(url(proxy), additional_headers={"x-tokentee-session": "ws-2"}) as client:
        client.send(CREATE.replace("a secret prompt", "cut"))
        assert [client.recv() for _ in range(4)] == answer_of(1)[:4]
        assert rows.eventually(
            lambda: [row["outcome"] for row in by_session(proxy, "ws-2")] == ["upstream_cut"]
        )


@pytest.mark.parametrize("how", ["break by fin", "break by rst"])
def test_what_upstream_breaks_is_broken_for_the_client(proxy: Mitmdump, how: str):
    with connect(url(proxy), additional_headers={"x-tokentee-session": how}) as client:
        client.send(CREATE.replace("a secret prompt", how))
        assert [client.recv() for _ in range(4)] == answer_of(1)[:4]
        with pytest.raises(ConnectionClosedError) as broken:
            client.recv(timeout=60)
        assert broken.value.rcvd is None, "no close frame came"
    assert rows.eventually(
        lambda: [row["outcome"] for row in by_session(proxy, how)] == ["upstream_cut"]
    )


def test_what_the_client_breaks_is_broken_for_upstream(proxy: Mitmdump):
    ENDS.clear()
    with connect(url(proxy), additional_headers={"x-tokentee-session": "ws-broken"}) as client:
        client.send(CREATE.replace("a secret prompt", "hold"))
        client.recv()
        reset(client.socket, by_rst=False)
    assert rows.eventually(lambda: ENDS == [None]), ENDS
    assert rows.eventually(
        lambda: [row["outcome"] for row in by_session(proxy, "ws-broken")] == ["client_left"]
    )


def test_a_client_that_leaves_is_settled_as_left(proxy: Mitmdump):
    with connect(url(proxy), additional_headers={"x-tokentee-session": "ws-3"}) as client:
        client.send(CREATE)
        client.recv()
    assert rows.eventually(
        lambda: [row["state"] for row in by_session(proxy, "ws-3")] == ["settled"]
    )
    # The server may have finished while the client was leaving.
    assert by_session(proxy, "ws-3")[0]["outcome"] in ("client_left", "complete")


def test_a_refused_handshake_is_an_exchange(proxy: Mitmdump):
    with (
        pytest.raises(InvalidStatus),
        connect(
            url(proxy, "/refused/v1/responses"), additional_headers={"x-tokentee-session": "ws-4"}
        ),
    ):
        pass
    (row,) = by_session(proxy, "ws-4")
    assert (row["outcome"], row["http_status"]) == ("http_error", 401)


def test_a_refusal_by_a_host_that_nobody_named_is_not_counted(proxy: Mitmdump):
    """Neither host nor answer confirms that it was an LLM call."""
    with (
        pytest.raises(InvalidStatus),
        connect(
            url(proxy, "/refused/v1/responses", 1),
            additional_headers={"x-tokentee-session": "ws-5"},
        ),
    ):
        pass
    assert by_session(proxy, "ws-5") == []


@pytest.mark.parametrize("upstream", [0, 1], ids=["named", "elsewhere"])
def test_other_websockets_have_one_row_where_llms_are_served(proxy: Mitmdump, upstream: int):
    session = {"x-tokentee-session": f"ws-other-{upstream}"}
    with connect(url(proxy, "/chat/socket", upstream), additional_headers=session) as client:
        client.send(CREATE)
        assert [client.recv() for _ in range(5)] == answer_of(1)
    if upstream == 0:
        assert rows.eventually(
            lambda: [row["outcome"] for row in by_session(proxy, "ws-other-0")] == ["complete"]
        )
    else:
        assert by_session(proxy, "ws-other-1") == []


@pytest.mark.parametrize("wants", ["script", "file"])
def test_whoever_wants_messages_has_all_of_them(tmp_path: Path, wants: str) -> None:
    """In somebody else's process, and in a file of flows."""
    script, saved = tmp_path / "counting.py", tmp_path / "flows.mitm"
    script.write_text(
        "import logging\n\n\ndef websocket_end(flow):\n"
        "    logging.info('it had %d messages', len(flow.websocket.messages))\n"
    )
    with upstream() as port:
        options = {
            "ledger_url": f"sqlite:///{tmp_path}/ledger.db",
            "tee_hosts": f"127.0.0.1:{port}=openai",
        }
        if wants == "file":
            options["save_stream_file"] = str(saved)
        with Mitmdump(
            tmp_path / "proxy",
            upstreams=[f"http://127.0.0.1:{port}"],
            beside=[script] if wants == "script" else [],
            options=options,
        ) as proxy:
            assert proxy.wait_for_log("tokentee: ledger ")
            host, own_port = proxy.address()
            with connect(f"ws://{host}:{own_port}/v1/responses") as client:
                client.send(CREATE)
                assert [client.recv() for _ in range(5)] == answer_of(1)
            if wants == "script":
                assert proxy.wait_for_log("it had 6 messages")
                return
            assert proxy.wait_for_log("client disconnect")
        with saved.open("rb") as file:
            (flow,) = FlowReader(file).stream()
        assert isinstance(flow, http.HTTPFlow)
        assert flow.websocket is not None
        assert len(flow.websocket.messages) == 6
