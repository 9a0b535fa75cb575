"""The script file is saved, saved with a mistake or deleted while answers run: nobody is cut off.

Every client gets every byte, and every exchange that had begun gets its row as if nothing had been.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.sync.client import connect as connect_websocket

from tests.proxy import rows
from tests.proxy.client import Ending, Http1
from tests.proxy.mitmdump import TEE, Mitmdump
from tests.proxy.pair import connect, post
from tests.proxy.test_before_end import DOCUMENTS, Framed, cases_of
from tests.proxy.test_websocket import CREATE, answer_of
from tests.proxy.test_websocket import upstream as websocket_upstream
from tests.proxy.upstream import Answer, Request, Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(120)]

LONG = b'{"model":"gpt-4o","messages":[{"role":"user","content":"' + b"x" * 4_000_000 + b'"}]}'


CASES = [
    each
    for each in cases_of("openai", "ollama", "document")
    if each.framed in (Framed.CHUNKED, Framed.LENGTH, Framed.CLOSE)
]


def save(script: Path, text: str, seconds: float = 5) -> None:
    """As an editor does; mitmproxy looks at the time of the file once a second."""
    script.write_text(text)
    later = time.time() + seconds
    os.utime(script, (later, later))


def starts(proxy: Mitmdump) -> int:
    return sum("tokentee: ledger " in line for line in proxy.log.splitlines())


def reload_it(proxy: Mitmdump, script: Path) -> None:
    save(script, TEE.read_text())
    assert proxy.wait_until(lambda: starts(proxy) == 2)


def break_it(proxy: Mitmdump, script: Path) -> None:
    save(script, "this is no Python\n")
    assert proxy.wait_for_log("the script was removed")


def break_and_mend_it(proxy: Mitmdump, script: Path) -> None:
    break_it(proxy, script)
    mend_it(proxy, script)


def break_close_and_mend_it(proxy: Mitmdump, script: Path) -> None:
    """With nothing else under way, a broken script's recording is closed, and forgets."""
    break_it(proxy, script)
    assert proxy.wait_until(lambda: is_closed(proxy))
    mend_it(proxy, script)


def mend_it(proxy: Mitmdump, script: Path) -> None:
    save(script, TEE.read_text(), 10)
    assert proxy.wait_until(lambda: starts(proxy) == 2)


def delete_it(proxy: Mitmdump, script: Path) -> None:
    script.unlink()
    assert proxy.wait_for_log("the script was removed")


CHANGES = [reload_it, break_it, break_and_mend_it, delete_it]
COMES_BACK = (reload_it, break_and_mend_it)


@contextlib.contextmanager
def proxy_of(folder: Path, port: int, provider: str) -> Iterator[tuple[Mitmdump, Path]]:
    script = folder / "tee.py"
    shutil.copy(TEE, script)
    options = {
        "ledger_url": f"sqlite:///{folder}/proxy/ledger.db",
        "tee_hosts": f"127.0.0.1:{port}={provider}",
    }
    upstreams = [f"http://127.0.0.1:{port}"]
    with Mitmdump(folder / "proxy", upstreams=upstreams, script=script, options=options) as proxy:
        assert proxy.wait_for_log("tokentee: ledger ")
        yield proxy, script


def open_files(proxy: Mitmdump, name: str) -> list[str]:
    """The files with this in their name that the proxy has open (Linux)."""
    found = []
    for entry in Path(f"/proc/{proxy.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(str(entry.readlink()))
    return [each for each in found if name in each]


def is_closed(proxy: Mitmdump) -> bool:
    return proxy.has_logged("tokentee: the ledger is closed")


@pytest.mark.parametrize("change", CHANGES)
def test_answers_under_way_are_whole_and_have_their_rows(
    tmp_path: Path, change: Callable[[Mitmdump, Path], None]
) -> None:
    def script(request: Request) -> Answer:
        return replace(CASES[int(request.header("x-case") or "")].answer(request), gate=gate)

    with Upstream(script) as upstream, proxy_of(tmp_path, upstream.port, "aivene") as (proxy, file):
        gate = upstream.gate()

        def play(number: int) -> str | None:
            case = CASES[number]
            with connect(proxy, is_h2=case.client_is_h2) as client:
                post(client, case.wire, str(number), ("x-case", str(number)), asked=case.asked)
                received = client.receive()
            by_close = case.framed is Framed.CLOSE and not case.client_is_h2
            ending = Ending.CLOSED if by_close else Ending.TERMINATED
            is_whole = (received.body, received.ending) == (case.body, ending)
            return None if is_whole else f"{case}: {received.ending}, {received.body[-60:]!r}"

        with ThreadPoolExecutor(len(CASES)) as pool:
            played = [pool.submit(play, number) for number in range(len(CASES))]
            assert rows.eventually(lambda: len(upstream.requests) == len(CASES))
            gate.release(len(CASES))
            change(proxy, file)
            gate.release(100 * len(CASES))
            found = [each.result() for each in played]
        assert not any(found), "\n".join(filter(None, found))
        if change not in COMES_BACK:
            assert proxy.wait_until(lambda: is_closed(proxy))
            assert rows.eventually(lambda: not open_files(proxy, "ledger.db"))
        kept = rows.by_tag(proxy.ledger, "case")
        for number, case in enumerate(CASES):
            (row,) = kept[str(number)]
            figures = ("settled", "complete", case.wire.figures["output_tokens"], 1, None)
            names = ("state", "outcome", "output_tokens", "reading_count", "degraded")
            assert tuple(row[name] for name in names) == figures, case
        assert "Addon error" not in proxy.log
        assert "connection_strategy=eager" not in proxy.log
        assert "no longer our own process" not in proxy.log


@pytest.mark.parametrize("change", [reload_it, break_close_and_mend_it])
def test_a_large_request_that_is_being_sent_gets_its_row(
    tmp_path: Path, change: Callable[[Mitmdump, Path], None]
) -> None:
    answer = Answer(pieces=DOCUMENTS.frames, content_type="application/json")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-tokentee-tag: case=long\r\n"
    head += b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(LONG)
    with (
        Upstream(lambda _: answer) as upstream,
        proxy_of(tmp_path, upstream.port, "aivene") as (proxy, file),
        Http1(proxy.address()) as client,
    ):
        client._socket.sendall(head)
        assert client._read_head()[0] == 100, "its head has been read before the script goes"
        client._socket.sendall(LONG[:1_000_000])
        change(proxy, file)
        client._socket.sendall(LONG[1_000_000:])
        received = client.receive()
        assert received.body == b"".join(DOCUMENTS.frames)
        (row,) = rows.exchanges(proxy.ledger)
        assert (row["state"], row["output_tokens"]) == ("settled", 64)
        assert row["tags"] == ({"case": "long"} if change is reload_it else {})
        assert upstream.requests[0].header("x-tokentee-tag") is None
        assert "Addon error" not in proxy.log


@pytest.mark.parametrize("change", CHANGES)
def test_an_open_websocket_keeps_its_rows(
    tmp_path: Path, change: Callable[[Mitmdump, Path], None]
) -> None:
    """A response of before, and one that begins while the script is gone or new."""
    with (
        websocket_upstream() as port,
        proxy_of(tmp_path, port, "openai") as (proxy, file),
    ):
        host, own_port = proxy.address()
        with connect_websocket(f"ws://{host}:{own_port}/v1/responses") as client:
            for number in (1, 2):
                client.send(CREATE)
                assert [client.recv() for _ in range(5)] == answer_of(number)
                if number == 1:
                    change(proxy, file)
                found = [(row["state"], row["response_id"]) for row in rows.exchanges(proxy.ledger)]
                assert found == [("settled", f"resp_{each}") for each in range(1, number + 1)]
        if change not in COMES_BACK:
            assert proxy.wait_until(lambda: is_closed(proxy))
        assert "Addon error" not in proxy.log
