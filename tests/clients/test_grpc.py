"""The real xai-sdk over gRPC and TLS, through a real mitmdump: its answers as they are without, and
a row for each call."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients import playing
from tests.clients.matrix import PROGRAMS
from tests.proxy import rows
from tests.proxy.certificates import make_certificate
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.test_caps import cap, capped
from tests.proxy.test_run import run

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PROGRAM = str(PROGRAMS / "xai_grpc_python.py")
FIGURES = ("grok-4", 100, 64, 42, "reported")
NOTHING = (None, None, None, None, "none")


@contextmanager
def upstream(folder: Path) -> Iterator[tuple[str, str, str]]:
    """The Python that has xai-sdk, a server's port, and the file of its certificate."""
    python = str(playing.installed(("xai-sdk",), is_node=False) / "bin" / "python")
    pem = str(make_certificate(folder))
    serving = [python, PROGRAM, "serve", pem]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield python, server.stdout.readline().strip(), pem
        finally:
            server.kill()


def test_each_call_of_xai_sdk_has_a_row(tmp_path: Path):
    with upstream(tmp_path) as (python, port, pem):
        options = {
            "ssl_verify_upstream_trusted_ca": pem,
            "tee_hosts": f"127.0.0.1:{port}=x_ai",
        }
        said = []
        with Mitmdump(tmp_path, upstreams=[f"https://127.0.0.1:{port}"], options=options) as proxy:
            proxied = "{}:{}".format(*proxy.address())
            for where, authority in ((f"127.0.0.1:{port}", pem), (proxied, str(proxy.authority))):
                asked = play([python, PROGRAM, "ask", where], authority)
                assert asked.returncode == 0, asked.stderr
                said.append(asked.stdout)
    direct, through = said
    assert through == direct
    assert direct.split("\n")[0] == "hello"
    columns = ("response_model", "input_tokens", "cache_read_tokens", "output_tokens")
    assert [
        (
            row["path"].rpartition("/")[2],
            *(row[name] for name in ("outcome", "error_code", *columns, "usage_source")),
        )
        for row in rows.exchanges(proxy.ledger)
    ] == [
        ("GetCompletion", "complete", None, *FIGURES),
        ("GetCompletionChunk", "complete", None, *FIGURES),
        ("GetCompletion", "error_frame", "RESOURCE_EXHAUSTED", *NOTHING),
        ("Both", "complete", None, *NOTHING),
    ]


CALLS = ("Both", "GetCompletion", "GetCompletionChunk")


def check_refused(said: str, ledger: Path) -> None:
    """The client's side that stays open waits for nothing."""
    begin = "RESOURCE_EXHAUSTED tokentee: refused by the cap "
    lines = said.splitlines()
    assert [line.startswith(begin) for line in lines] == [True] * 3, said
    assert all("its cost has no bound" in line for line in lines)
    assert sorted(
        (row["path"].rpartition("/")[2], row["outcome"], row["http_status"], row["error_type"])
        for row in rows.exchanges(ledger)
    ) == [(call, "refused", 200, "tokentee_cap") for call in CALLS]


def test_a_cap_refuses_as_grpc_does(tmp_path: Path):
    with upstream(tmp_path) as (python, port, _):
        with capped(
            f"https://127.0.0.1:{port}",
            tmp_path,
            cap(usd=0.000001),
            provider="x_ai",
        ) as proxy:
            where = "{}:{}".format(*proxy.address())
            asked = play([python, PROGRAM, "refused", where], str(proxy.authority))
            assert asked.returncode == 0, asked.stderr
            assert rows.eventually(lambda: len(rows.exchanges(proxy.ledger)) == 3)
        check_refused(asked.stdout, proxy.ledger)


def test_a_cap_of_run_refuses_as_grpc_does(tmp_path: Path):
    with upstream(tmp_path) as (python, port, _):
        words = ["--set", f"tee_hosts=127.0.0.1:{port}=x_ai", "--max-usd", "0.000001", "--"]
        asked = run(tmp_path, *words, python, PROGRAM, "refused", f"127.0.0.1:{port}")
        check_refused(asked.stdout.decode(), tmp_path / "ledger.db")


def test_a_call_that_a_cap_passes_is_not_held(tmp_path: Path):
    """Nor one in both directions."""
    with upstream(tmp_path) as (python, port, pem):
        direct = play([python, PROGRAM, "ask", f"127.0.0.1:{port}"], pem)
        words = ["--set", f"tee_hosts=127.0.0.1:{port}=x_ai", "--max-usd", "1", "--unpriced=pass"]
        words += ["--set", f"ssl_verify_upstream_trusted_ca={pem}", "--"]
        asked = run(tmp_path, *words, python, PROGRAM, "ask", f"127.0.0.1:{port}")
        assert asked.stdout.decode().startswith(direct.stdout), asked.stderr.decode()
    assert len(rows.exchanges(tmp_path / "ledger.db")) == 4


def test_a_call_is_bounded_by_what_it_says(tmp_path: Path):
    with upstream(tmp_path) as (python, port, pem):
        words = ["--set", f"tee_hosts=127.0.0.1:{port}=x_ai", "--max-usd", "0.10"]
        words += ["--set", f"ssl_verify_upstream_trusted_ca={pem}", "--"]
        asked = run(tmp_path, *words, python, PROGRAM, "bounded", f"127.0.0.1:{port}")
        hello, streamed, error, *_ = asked.stdout.decode().splitlines()
        assert (hello, streamed) == ("hello", "word " * 20), asked.stderr.decode()
    assert error.startswith("RESOURCE_EXHAUSTED tokentee: refused by the cap run: ")
    assert "no bound" not in error
    found = rows.exchanges(tmp_path / "ledger.db")
    assert [(row["outcome"], row["request_model"], row["input_tokens"]) for row in found] == [
        *[("complete", "grok-4", 100)] * 2,
        ("refused", "grok-4", None),
    ]
    assert all(0 < row["hold_picousd"] < 10**11 for row in found[:2])


def play(words: list[str], authority: str) -> subprocess.CompletedProcess[str]:
    """Run a program that trusts an authority."""
    return subprocess.run(
        words,
        env={**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": authority},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
