"""The harness does what it says: a bare mitmdump between its own two ends.

How answers end through it, `test_matrix` states for every case.
"""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.client import Http1
from tests.proxy.mitmdump import BARE, Mitmdump
from tests.proxy.upstream import Answer, Upstream

pytestmark = pytest.mark.proxy


@pytest.fixture
def plain() -> Iterator[Upstream]:
    with Upstream(lambda _: Answer(pieces=(b"data: one\n\n",))) as upstream:
        yield upstream


def test_requests_are_kept_byte_for_byte(tmp_path: Path, plain: Upstream) -> None:
    with (
        Mitmdump(tmp_path, upstreams=[plain.url], script=BARE) as proxy,
        Http1(proxy.address()) as client,
    ):
        client.send("POST", "/a?b=c", [("X-Odd-Case", "v")], b'{"a": 1}')
        client.receive()
        client.send("POST", "/b", [], chunks=[b"he", b"llo"], expect=True)
        client.receive()
        assert client.is_quiet()
    first, second = plain.requests
    assert first.target == "/a?b=c"
    assert first.raw.endswith(b'\r\n\r\n{"a": 1}')
    assert ("X-Odd-Case", "v") in first.headers
    assert second.body == b"hello"


def test_a_forked_mitmdump_is_a_process_of_its_own(tmp_path: Path, plain: Upstream) -> None:
    """With a folder, a log and an exit code of its own, as one from the command line."""
    one, other = (
        Mitmdump(
            tmp_path / name,
            upstreams=[plain.url],
            script=BARE,
            has_own_interpreter=has_own_interpreter,
        )
        for name, has_own_interpreter in (("one", False), ("other", True))
    )
    with one, other:
        for proxy in (one, other):
            process = Path(f"/proc/{proxy.process.pid}")
            assert (process / "cwd").readlink() == proxy.folder
            assert proxy.process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                proxy.process.wait(0)
        assert one.stop(signal.SIGKILL) == other.stop(signal.SIGKILL) == -signal.SIGKILL
    with one, other:
        pass
    assert one.process.returncode == other.process.returncode == 0
    assert one.log.splitlines()[0].endswith("Loading script " + str(BARE))
