"""`tokentee run -- COMMAND`: the command runs as always, and its bill is printed; also behind an HTTP
proxy that the environment names."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from addon.run import leftovers
from tests.proxy import forked, rows
from tests.proxy.certificates import make_certificate, server_context
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.pair import OPENAI, speak
from tests.proxy.relaying import ConnectProxy
from tests.proxy.upstream import Upstream

pytestmark = pytest.mark.proxy

CHILD = Path(__file__).parent / "scripts" / "run_child.py"
PROXY_VARIABLES = {
    "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY",
    "no_proxy",
}  # fmt: skip
NOT_INHERITED = PROXY_VARIABLES | {
    "NODE_OPTIONS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
}  # fmt: skip
"""What the machine of the test sets must not decide the test."""


def run(
    folder: Path, *words: str, has_own_interpreter: bool = False, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    environment = inherited | {"TOKENTEE_LEDGER": f"sqlite:///{folder}/ledger.db"} | environment
    words = ("run", "--set", f"confdir={folder}", *words)
    if not has_own_interpreter:
        return forked.run("tokentee", *words, folder=Path.cwd(), environment=environment)
    return subprocess.run(
        [sys.executable, "-c", "from addon.cli import main; main()", *words],
        capture_output=True, timeout=100, check=False, stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


@dataclass
class Ran:
    """One run of the child that tries every way."""

    found: dict[str, Any]
    stderr: str
    exit_code: int
    rows: list[rows.Row]
    upstream: Upstream
    proxy: ConnectProxy
    certificates: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """A run behind a company's proxy that wants a credential, with an authority of its own."""
    folder = tmp_path_factory.mktemp("run")
    pem = make_certificate(folder)
    body = OPENAI.request(asked=True).decode()
    with (
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as llm,
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as other,
        Upstream(speak(OPENAI)) as plain,
        ConnectProxy(credentials="me:s3cret") as proxy,
    ):
        done = run(
            folder, "--set", f"tee_hosts=localhost:{llm.port}", "--set", "tee_tags=team=search",
            "--", sys.executable, str(CHILD), f"localhost:{llm.port}", f"127.0.0.1:{other.port}",
            f"127.0.0.1:{plain.port}", body, has_own_interpreter=True,
            HTTPS_PROXY=proxy.url,
            NO_PROXY=f"localhost,.internal,127.0.0.1:{plain.port}",
            SSL_CERT_FILE=str(pem),
            REQUESTS_CA_BUNDLE=str(folder / "missing.pem"),
            OPENAI_BASE_URL=f"http://127.0.0.1:{plain.port}/v1",
            NODE_OPTIONS="--max-old-space-size=200",
        )  # fmt: skip
        assert done.stdout, done.stderr.decode()
        yield Ran(
            found=json.loads(done.stdout),
            stderr=done.stderr.decode(),
            exit_code=done.returncode,
            rows=rows.exchanges(folder / "ledger.db"),
            upstream=llm,
            proxy=proxy,
            certificates=pem,
        )


def test_the_command_runs_as_always_and_is_recorded(ran: Ran):
    assert ran.exit_code == 7, ran.stderr
    assert ran.found["llm"] == [200, b"".join(OPENAI.answer(asked=True)).decode()]
    row = ran.rows[0]
    assert (row["outcome"], row["session_id"]) == ("complete", "s1")
    assert row["tags"]["team"] == "search"
    assert row["response_model"] in ran.stderr
    assert f"tag:run={row['tags']['run']}" in ran.stderr


def test_only_llm_hosts_are_decrypted(ran: Ran):
    assert "mitmproxy" in ran.found["llm_issuer"]
    assert "loopback upstream" in ran.found["other_issuer"]


def test_the_proxy_answers_its_child_alone(ran: Ran):
    for answer in ran.found["refused"]:
        assert answer.startswith("HTTP/1.1 407 "), answer
        assert "Proxy-Authenticate: Basic" in answer
    assert ran.found["local_without_secret"][0] == 404
    assert len(ran.rows) == 2, "what was refused is on nobody's bill"


def test_no_credential_of_ours_goes_upstream(ran: Ran):
    for request in ran.upstream.requests:
        assert request.header("proxy-authorization") is None
        assert request.header("x-tokentee-session") is None


def test_a_base_url_that_leads_to_this_machine_keeps_its_path(ran: Ran):
    path = ran.found["base_url_path"]
    assert path.endswith("/v1")
    assert len(path) > 30, "a secret stands before it"
    assert ran.found["local"] == [200, b"".join(OPENAI.answer(asked=True)).decode()]
    assert ran.rows[1]["path"] == "/v1/chat/completions"


def test_the_way_out_is_the_parents(ran: Ran):
    """Its proxy is used with its credential, and its NO_PROXY holds; the child's leads nothing past."""
    assert any("CONNECT 127.0.0.1" in line for line in ran.proxy.seen)
    assert not any(line.startswith("407") for line in ran.proxy.seen)
    assert not any("localhost" in line for line in ran.proxy.seen)
    entries = ran.found["environment"]["NO_PROXY"].split(",")
    assert ".internal" in entries
    assert "localhost" not in entries, "tee_hosts names it"


def test_what_the_user_has_set_is_merged(ran: Ran):
    """Bundles are gone with the run: the child has verified with them."""
    environment = ran.found["environment"]
    assert environment["SSL_CERT_FILE"] != str(ran.certificates)
    assert environment["SSL_CERT_FILE"] != environment["REQUESTS_CA_BUNDLE"]
    assert environment["NODE_OPTIONS"].startswith("--max-old-space-size=200 --require ")
    for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OPENAI_API_BASE", "CO_API_URL"):
        assert name not in environment
    (line,) = [line for line in ran.stderr.splitlines() if "REQUESTS_CA_BUNDLE" in line]
    assert "missing.pem" in line
    assert "No such file" in line


def test_a_command_without_llm_traffic_says_so(tmp_path: Path):
    """And without `--`: the first word that is no option begins the command."""
    done = run(tmp_path, sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
    assert "no LLM request passed" in done.stderr.decode()


def test_a_command_that_cannot_be_started_is_127(tmp_path: Path):
    done = run(tmp_path, "--", "/no/such/command")
    assert done.returncode == 127
    assert "cannot run /no/such/command: No such file or directory" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_signal_that_ended_the_command_is_reported_as_by_a_shell(tmp_path: Path):
    done = run(tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15


def test_an_option_of_mitmproxys_that_is_none_is_refused(tmp_path: Path):
    done = run(tmp_path, "--set", "tee_host=x", "true")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2, lines
    assert len(lines) == 1
    assert "did you mean tee_hosts?" in lines[0]


def test_a_proxy_that_cannot_be_used_is_said(tmp_path: Path):
    done = run(tmp_path, "true", ALL_PROXY="socks5h://me:s3cret@127.0.0.1:1080")
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "ALL_PROXY names a socks5h proxy" in line
    assert "set HTTPS_PROXY and HTTP_PROXY to http://HOST:PORT" in line
    assert "s3cret" not in line


CONNECTING = """
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTPS_PROXY"])
with socket.create_connection((proxy.hostname, proxy.port)) as connection:
    connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    connection.recv(1000)
"""


@pytest.mark.parametrize(
    ("words", "is_logged"),
    [
        pytest.param((), False, id="not by default"),
        pytest.param(("--set", "termlog_verbosity=info"), True, id="when asked for"),
    ],
)
def test_connections_are_logged(tmp_path: Path, words: tuple[str, ...], is_logged: bool):
    done = run(tmp_path, *words, "--", sys.executable, "-c", CONNECTING)
    assert done.returncode == 0, done.stderr
    assert (b"client connect" in done.stderr) is is_logged


def test_a_script_hears_what_is_logged(tmp_path: Path):
    script = tmp_path / "hearing.py"
    script.write_text(f"""
def add_log(entry):
    with open({str(tmp_path / "heard")!r}, "a") as heard:
        print(entry.level, entry.msg, file=heard)
""")
    done = run(tmp_path, "-s", str(script), "--", sys.executable, "-c", CONNECTING)
    assert done.returncode == 0, done.stderr
    assert "client connect" in (tmp_path / "heard").read_text()


TWO_CALLS = Path(__file__).parent / "scripts" / "two_calls.py"
ASKED_BODY = OPENAI.request(asked=True).decode()
ANSWER = b"".join(OPENAI.answer(asked=True)).decode()


def call(folder, llm, plain, **environment):
    """Exit code, what the command got for its two requests, and stderr."""
    done = run(
        folder, "--set", f"tee_hosts=localhost:{llm}", "--", sys.executable, str(TWO_CALLS), ASKED_BODY,
        f"https://localhost:{llm}/v1/chat/completions",
        f"http://localhost:{plain}/v1/chat/completions",
        **environment,
    )  # fmt: skip
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout), done.stderr.decode()


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("pem"))


def test_no_proxy_holds(tmp_path, pem):
    with (
        Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as llm,
        Upstream(speak(OPENAI)) as plain,
        ConnectProxy() as proxy,
    ):
        found, stderr = call(
            tmp_path, llm.port, plain.port, ALL_PROXY=proxy.url,
            NO_PROXY=f"localhost:{llm.port}", SSL_CERT_FILE=str(pem),
        )  # fmt: skip
    assert found == [[200, ANSWER], [200, ANSWER]], stderr
    assert proxy.seen == [f"POST http://localhost:{plain.port}/v1/chat/completions HTTP/1.1"]


TUNNEL = """
import base64, os, socket, ssl, sys, urllib.parse
to = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
who = base64.b64encode(f"{to.username}:{to.password}".encode()).decode()
line = socket.create_connection((to.hostname, to.port), 60)
line.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nProxy-Authorization: Basic {who}\\r\\n\\r\\n".encode())
assert b" 200 " in line.recv(65536)
ssl._create_unverified_context().wrap_socket(line, server_hostname="llm.example").close()
"""


def test_a_tunnel_to_an_address_is_named_as_its_tls_names_it(tmp_path: Path, pem: Path):
    with Upstream(speak(OPENAI), tls=server_context(pem, http2=False)) as other:
        words = ("--", sys.executable, "-c", TUNNEL, f"127.0.0.1:{other.port}")
        done = run(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert f"--set tee_hosts=llm.example:{other.port} --" in done.stderr.decode()


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_the_exit_code_is_the_commands_whatever_can_be_written(tmp_path: Path, redirection: str):
    line = f'"$0" -c "from addon.cli import main; main()" run -- sh -c "exit 23" {redirection}'
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}", sys.executable],
        timeout=100, check=False, stdout=subprocess.DEVNULL,
        env=os.environ | {"TOKENTEE_LEDGER": f"sqlite:///{tmp_path}/ledger.db", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 23


@pytest.mark.parametrize("moment", ["the proxy starts", "the command runs"])
def test_a_hangup_at_any_moment_leaves_no_command_and_no_folder(tmp_path: Path, moment: str):
    started = tmp_path / "started"
    with subprocess.Popen(
        [sys.executable, "-c", "from addon.cli import main; main()", "run",
         "--set", f"confdir={tmp_path}", "--", "sh", "-c", f"echo $$ > {started}.part; mv {started}.part {started}; exec sleep 60"],
        stderr=subprocess.PIPE,
        env=os.environ | {"TOKENTEE_LEDGER": f"sqlite:///{tmp_path}/ledger.db", "TMPDIR": str(tmp_path)},
    ) as run:  # fmt: skip
        glob = f"{leftovers.PREFIX}*/*.pem" if moment == "the proxy starts" else started.name
        assert rows.eventually(lambda: bool(list(tmp_path.glob(glob))), 60)
        is_running = started.exists()  # it may have got that far since
        run.send_signal(signal.SIGHUP)
        if not is_running:  # before the signal's handler is there
            assert run.wait(60) in (1, -signal.SIGHUP, 128 + signal.SIGHUP)
            assert not started.exists()
        else:
            assert run.wait(60) == 128 + signal.SIGHUP
            assert not Path(f"/proc/{started.read_text().strip()}").exists()
    leftovers.remove_leftovers(tmp_path)
    assert not list(tmp_path.glob(f"{leftovers.PREFIX}*"))


MOMENTS = {
    "the imports": "tmp",
    "the folder": f"tmp/{leftovers.PREFIX}*",
    "the authorities": f"tmp/{leftovers.PREFIX}*/*.pem",
    "the ledger": "ledger.db",
    "its tables": "ledger.db-wal",
    "the certificate": "conf/mitmproxy-ca-cert.pem",
    "the command": "started",
}
"""What is there at a moment of the start -> the file that shows it."""


@pytest.mark.parametrize("place", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("later_seconds", [0.0, 0.02])
def test_ctrl_c_at_every_moment_of_the_start_ends_the_run(tmp_path: Path, place, later_seconds):
    """A terminal sends it to the run and to its command, if that is there."""
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "from addon.cli import main; main()", "run",
         "--set", f"confdir={tmp_path}/conf", "--", "sh", "-c", f"echo $$ > {tmp_path}/started; exec sleep 60"],
        stderr=subprocess.PIPE, start_new_session=True, text=True,
        env=os.environ | {"TOKENTEE_LEDGER": f"sqlite:///{tmp_path}/ledger.db", "TMPDIR": f"{tmp_path}/tmp"},
    ) as run:  # fmt: skip
        assert rows.eventually(lambda: bool(list(tmp_path.glob(place))), 60)
        time.sleep(later_seconds)
        os.killpg(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=100)
    if place == "tmp":  # Python may be starting, whose own words and exit code these are
        assert run.returncode in (130, -signal.SIGINT) or (
            run.returncode == 1 and "Fatal Python error" in said
        )
        assert not (tmp_path / "started").exists()
    else:
        assert run.returncode == 130, said
        assert "Traceback" not in said
    leftovers.remove_leftovers(tmp_path / "tmp")
    assert not list((tmp_path / "tmp").glob(f"{leftovers.PREFIX}*"))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_http2_of_node_is_led_through_the_proxy(tmp_path: Path) -> None:
    """It reads no proxy variable in any version; the AWS SDK calls Bedrock by it."""
    pem = make_certificate(tmp_path)
    script = str(CHILD.with_name("http2_client.cjs"))
    with Upstream(speak(OPENAI), tls=server_context(pem, http2=True)) as llm:
        origin = f"https://localhost:{llm.port}"
        body = OPENAI.request(asked=True).decode()
        done = run(
            tmp_path, "--set", f"tee_hosts=localhost:{llm.port}",
            "--", "node", script, origin, "/v1/chat/completions", body,
            NODE_EXTRA_CA_CERTS=str(pem), SSL_CERT_FILE=str(pem),
            has_own_interpreter=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"".join(OPENAI.answer(asked=True))
    (row,) = rows.exchanges(tmp_path / "ledger.db")
    assert (row["outcome"], row["output_tokens"]) == ("complete", 64)
    assert b"went past" not in done.stderr


FETCHING = """
const [url, body] = process.argv.slice(1);
const asked = { method: 'POST', headers: { 'content-type': 'application/json' } };
fetch(url, { ...asked, body }).then((answer) => answer.text()).catch(() => {}).then(() => {
  require('http').request(url, asked, (answer) => answer.resume()).on('error', () => {}).end(body);
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.ci
def test_an_ipv6_address_leads_nothing_of_node_past(tmp_path: Path) -> None:
    with Upstream(speak(OPENAI), address=("::1", 0)) as llm:
        to = f"[::1]:{llm.port}"
        words = ["--set", f"tee_hosts={to}", "--", "node", "-e", FETCHING]
        words += [f"http://{to}/v1/chat/completions", OPENAI.request(asked=True).decode()]
        done = run(tmp_path, *words, has_own_interpreter=True)
    assert len(llm.requests) == len(rows.exchanges(tmp_path / "ledger.db")) == 2, done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_dot_at_the_end_of_a_name_leads_nothing_of_node_past(tmp_path: Path) -> None:
    words = ["--set", "tee_hosts=llm.invalid", "--", "node", "-e", FETCHING]
    done = run(tmp_path, *words, "http://llm.invalid./v1/chat/completions", "{}")
    assert b"the proxy could not connect to llm.invalid.:80" in done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_http2_without_tls_is_answered(tmp_path: Path) -> None:
    """The AWS SDK for JavaScript speaks it at `http://` endpoints at once, with no upgrade."""
    pem = make_certificate(tmp_path)
    script = str(CHILD.with_name("http2_client.cjs"))
    body = OPENAI.request(asked=True).decode()
    with Upstream(speak(OPENAI), tls=server_context(pem, http2=True)) as llm:
        options = {"ssl_verify_upstream_trusted_ca": str(pem)}
        with Mitmdump(
            tmp_path / "tee", upstreams=[llm.url], options=options, tool="tokentee"
        ) as proxy:
            host, port = proxy.address()
            done = subprocess.run(
                ["node", script, f"http://{host}:{port}", "/v1/chat/completions", body],
                capture_output=True, timeout=100, check=False,
            )  # fmt: skip
            assert done.stdout == b"".join(OPENAI.answer(asked=True)), done.stderr
            assert rows.eventually(
                lambda: [row["output_tokens"] for row in rows.exchanges(proxy.ledger)] == [64]
            )


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_an_answer_ends_after_its_client_has_closed_the_session(tmp_path: Path) -> None:
    """The AWS SDK for JavaScript sends GOAWAY when it has the head of an answer."""
    pem = make_certificate(tmp_path)
    script = str(CHILD.with_name("http2_client.cjs"))
    body = OPENAI.request(asked=True).decode()
    answer = speak(OPENAI)
    with Upstream(answer, tls=server_context(pem, http2=True)) as llm:
        gate = llm.gate()
        llm.script = lambda request: replace(answer(request), gate=gate)
        options = {"ssl_verify_upstream_trusted_ca": str(pem)}
        with (
            Mitmdump(
                tmp_path / "tee", upstreams=[llm.url], options=options, tool="tokentee"
            ) as proxy,
            subprocess.Popen(
                ["node", script, "http://{}:{}".format(*proxy.address()), "/v1/chat/completions",
                 body],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            ) as client,
        ):  # fmt: skip
            assert client.stderr is not None
            assert client.stderr.readline() == b"closed\n"
            gate.release(len(OPENAI.answer(asked=True)))
            out, err = client.communicate(timeout=100)
            assert out == b"".join(OPENAI.answer(asked=True)), err
            assert client.returncode == 0
            assert rows.eventually(
                lambda: [row["outcome"] for row in rows.exchanges(proxy.ledger)] == ["complete"]
            )
