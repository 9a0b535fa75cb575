"""`tokentee run` behind a SOCKS proxy that the environment names."""

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.pair import OPENAI, speak
from tests.proxy.socks_proxy import NOT_ALLOWED, SocksProxy
from tests.proxy.test_run import run
from tests.proxy.upstream import Upstream

pytestmark = pytest.mark.proxy

CHILD = Path(__file__).parent / "scripts" / "socks_child.py"
BODY = OPENAI.request(asked=True).decode()
ANSWER = b"".join(OPENAI.answer(asked=True)).decode()


def call(folder, llm, plain, **environment):
    """Exit code, what the command got for its two requests, and stderr."""
    done = run(
        folder, "--set", f"tee_hosts=localhost:{llm}", "--", sys.executable, str(CHILD), BODY,
        f"https://localhost:{llm}/v1/chat/completions",
        f"http://localhost:{plain}/v1/chat/completions",
        **environment,
    )  # fmt: skip
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout), done.stderr.decode()


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("pem"))


@pytest.mark.parametrize(
    ("scheme", "credentials", "host"),
    [
        pytest.param("socks5h", "me:s3cret", "localhost", id="the-proxy-resolves"),
        pytest.param("socks5", None, None, id="this-machine-resolves"),
    ],
)
def test_a_stream_and_a_plain_request_pass_and_are_recorded(
    tmp_path, pem, scheme, credentials, host
):
    with (
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as llm,
        Upstream(speak(OPENAI)) as plain,
        SocksProxy(credentials=credentials) as proxy,
    ):
        found, stderr = call(
            tmp_path, llm.port, plain.port, ALL_PROXY=proxy.url(scheme), SSL_CERT_FILE=str(pem)
        )
    assert found == [[200, ANSWER], [200, ANSWER]], stderr
    assert [port for _, port in proxy.seen] == [llm.port, plain.port]
    names = {name for name, _ in proxy.seen}
    assert names == {host} if host else names <= {"127.0.0.1", "::1"}
    for request in (*llm.requests, *plain.requests):
        assert request.header("proxy-authorization") is None
    assert plain.requests[0].target == "/v1/chat/completions"
    recorded = rows.exchanges(tmp_path / "ledger.db")
    assert [row["outcome"] for row in recorded] == ["complete", "complete"]
    assert {row["response_bytes"] for row in recorded} == {len(ANSWER.encode())}
    assert "s3cret" not in stderr
    assert "Traceback" not in stderr


def test_no_proxy_holds(tmp_path, pem):
    with (
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as llm,
        Upstream(speak(OPENAI)) as plain,
        SocksProxy() as proxy,
    ):
        found, stderr = call(
            tmp_path, llm.port, plain.port, ALL_PROXY=proxy.url("socks5h"),
            NO_PROXY=f"localhost:{llm.port}", SSL_CERT_FILE=str(pem),
        )  # fmt: skip
    assert found == [[200, ANSWER], [200, ANSWER]], stderr
    assert proxy.seen == [("localhost", plain.port)]


def test_a_proxy_that_refuses_or_is_gone_is_named_without_its_password(tmp_path, pem):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"socks5h://me:s3cret@127.0.0.1:{closed.getsockname()[1]}"
    with SocksProxy(credentials="me:s3cret", reply=NOT_ALLOWED) as proxy:
        for url, reason in (
            (proxy.url("socks5h"), "ruleset"),
            (proxy.url("socks5h").replace("s3cret", "s4cret"), "authentication"),
            (gone, "refused"),
        ):
            found, stderr = call(tmp_path, 9, 9, ALL_PROXY=url, SSL_CERT_FILE=str(pem))
            for status, text in found:
                assert status == 502
                assert f"socks5h://127.0.0.1:{url.rpartition(':')[2]}: " in text
                assert reason in text.lower()
                assert "cret" not in text + stderr
    assert set(proxy.wrong) == {"me:s4cret"}
