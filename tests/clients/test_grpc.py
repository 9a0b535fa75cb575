"""The real xai-sdk over gRPC and TLS, through a real mitmdump: its answers as they are without, and
a row for each call."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.clients import playing
from tests.clients.matrix import PROGRAMS
from tests.proxy import rows
from tests.proxy.certificates import make_certificate
from tests.proxy.mitmdump import Mitmdump

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PROGRAM = str(PROGRAMS / "xai_grpc_python.py")
FIGURES = ("grok-4", 100, 64, 42, "reported")
NOTHING = (None, None, None, None, "none")


def test_each_call_of_xai_sdk_has_a_row(tmp_path: Path):
    python = str(playing.installed(("xai-sdk",), is_node=False) / "bin" / "python")
    pem = make_certificate(tmp_path)
    serving = [python, PROGRAM, "serve", str(pem)]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as upstream:
        try:
            assert upstream.stdout is not None
            port = upstream.stdout.readline().strip()
            options = {
                "ssl_verify_upstream_trusted_ca": str(pem),
                "tee_hosts": f"127.0.0.1:{port}=x_ai",
            }
            said = []
            with Mitmdump(
                tmp_path, upstreams=[f"https://127.0.0.1:{port}"], options=options
            ) as proxy:
                proxied = "{}:{}".format(*proxy.address())
                for where, authority in ((f"127.0.0.1:{port}", pem), (proxied, proxy.authority)):
                    asked = subprocess.run(
                        [python, PROGRAM, "ask", where, str(authority)],
                        env={**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)},
                        capture_output=True,
                        text=True,
                        timeout=60,
                        check=False,
                    )
                    assert asked.returncode == 0, asked.stderr
                    said.append(asked.stdout)
        finally:
            upstream.kill()
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
