"""What a command run under `tokentee run` is told; the proxy that the parent's environment names; bundles of
certificates: merged with the user's own, never in place of them."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import certifi
import pytest

from addon.run.command import authorities
from addon.run.command.authorities import read_trust, write_bundles, write_trusted
from addon.run.command.child import (
    CommandCannotStartError,
    environment_for,
    node_options,
    run_command,
    workspace_of,
)
from addon.run.command.hosts import BadProxyError, Proxy, covers, outbound_of
from tests.named import for_each

PROXY = "http://tokentee:secret@127.0.0.1:8080"


def told(environment: dict[str, str], listeners: dict[str, str] | None = None) -> dict[str, str]:
    return environment_for(
        environment,
        proxy_url=PROXY,
        no_proxy=["localhost", "127.0.0.1"],
        bundles={"SSL_CERT_FILE": "/tmp/bundle.pem"},
        listeners=listeners or {},
        preload="/opt/preload.cjs",
        node_hosts="^api:443$",
    )


def test_nothing_but_the_way_is_set():
    assert told({}).keys() == {
        "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy",
        "SSL_CERT_FILE", "NODE_USE_ENV_PROXY", "NODE_OPTIONS", "TOKENTEE_NODE_HOSTS",
    }  # fmt: skip


def test_everything_else_stays_as_it_was():
    before = {"PATH": "/bin", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://gw.corp/v1"}
    assert told(before).items() >= before.items()


@for_each("name", ["ALL_PROXY", "all_proxy"])
def test_all_proxy_is_replaced_only_where_it_is_set(name: str):
    """With an HTTP proxy in it, curl would ask the recorder for ftp:// too."""
    assert told({name: "http://corp:3128"})[name] == PROXY
    assert name not in told({})
    assert told({name: ""})[name] == ""


@for_each(
    "variable, value, becomes",
    [
        pytest.param(
            "OPENAI_BASE_URL", "http://127.0.0.1:11434/v1", "http://127.0.0.1:9/s/v1", id="local"
        ),
        pytest.param("OLLAMA_HOST", "http://127.0.0.1:11434", None, id="ollama-listens-there"),
        pytest.param("OPENAI_BASE_URL", "http://gw.corp:11434/v1", None, id="elsewhere"),
        pytest.param("OPENAI_BASE_URL", "127.0.0.1:11434", None, id="no-scheme"),
        pytest.param("OTHER_URL", "http://127.0.0.1:11434/v1", None, id="no-base-url"),
    ],
)
def test_a_base_url_of_a_local_server_leads_to_its_listener(
    variable: str, value: str, becomes: str | None
):
    child = told({variable: value}, {"http://127.0.0.1:11434": "http://127.0.0.1:9/s"})
    assert child[variable] == (becomes or value)


def test_a_local_base_url_without_a_listener_stays():
    assert told({"OPENAI_BASE_URL": "http://localhost:1/v1"})["OPENAI_BASE_URL"].endswith(":1/v1")


@for_each(
    "before, preload, after",
    [
        pytest.param("", "/a/b.cjs", '--require "/a/b.cjs"', id="alone"),
        pytest.param("--no-warnings", "/b.cjs", '--no-warnings --require "/b.cjs"', id="merged"),
        pytest.param("", '/a b/"c".cjs', '--require "/a b/\\"c\\".cjs"', id="quoted"),
    ],
)
def test_node_options(before: str, preload: str, after: str):
    assert node_options(before, preload) == after


def repository(folder: Path, head: str = "ref: refs/heads/main\n") -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    return folder


def test_a_folder_deep_in_a_repository(tmp_path):
    inside = repository(tmp_path / "search") / "a" / "b"
    inside.mkdir(parents=True)
    assert workspace_of(inside) == ("search", "main")


def test_a_worktree_has_a_branch_of_its_own(tmp_path):
    main = repository(tmp_path / "search")
    own = main / ".git" / "worktrees" / "fix"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/feature/fix-1\n")
    tree = tmp_path / "fix"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert workspace_of(tree) == ("fix", "feature/fix-1")


def test_a_commit_that_is_checked_out(tmp_path):
    folder = repository(tmp_path / "p", "0123456789abcdef0123456789abcdef01234567\n")
    assert workspace_of(folder) == ("p", None)


def test_outside_of_a_repository(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    assert workspace_of(folder) == ("plain", None)


@for_each("content", [b"", b"\xff\xfe", b"gitdir: /nowhere"])
def test_an_odd_git_file_is_no_repository(tmp_path, content):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / ".git").write_bytes(content)
    assert workspace_of(folder) == ("odd", None)


def test_long_names_are_cut(tmp_path):
    folder = repository(tmp_path / ("p" * 150), f"ref: refs/heads/{'b' * 300}")
    assert workspace_of(folder) == ("p" * 100, "b" * 100)
    assert workspace_of(Path("/"))[1] is None


CORP = "http://me:p%40ss@proxy.corp:3128"


def test_nothing_set_is_a_direct_way():
    found = outbound_of({})
    assert found.any_proxy is None
    assert found.proxy_for("https", "api.openai.com", 443) is None


def test_a_proxy_with_a_credential():
    found = outbound_of({"HTTPS_PROXY": CORP}).proxy_for("https", "api.openai.com", 443)
    assert found == Proxy(scheme="http", host="proxy.corp", port=3128, credentials="me:p@ss")
    assert found.authorization == "Basic bWU6cEBzcw=="
    assert found.url == "http://proxy.corp:3128", "mitmproxy's mode must not show the password"


@for_each(
    "environment, https, http",
    [
        ({"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"}, "b", None),
        ({"HTTPS_PROXY": "http://a:1", "HTTP_PROXY": "http://c:3"}, "a", "c"),
        ({"ALL_PROXY": "http://d:4"}, "d", "d"),
        ({"ALL_PROXY": "http://d:4", "HTTPS_PROXY": "http://a:1"}, "a", "d"),
        ({"https_proxy": "a:1"}, "a", None),
        ({"HTTPS_PROXY": "https://a"}, "a", None),
    ],
)
def test_which_variable_counts(environment: dict[str, str], https: str | None, http: str | None):
    found = outbound_of(environment)
    for scheme, host in (("https", https), ("http", http)):
        proxy = found.proxy_for(scheme, "api.openai.com", 443)
        assert (proxy.host if proxy else None) == host


def test_ports_of_the_scheme():
    assert outbound_of({"HTTPS_PROXY": "https://a"}).any_proxy.port == 443  # type: ignore[union-attr]
    assert outbound_of({"HTTPS_PROXY": "http://[::1]"}).any_proxy.url == "http://[::1]:80"  # type: ignore[union-attr]


def test_no_credential_is_no_header():
    assert outbound_of({"HTTPS_PROXY": "a:1"}).any_proxy.authorization is None  # type: ignore[union-attr]


@for_each(
    "value, named",
    [
        ("socks5h://a:1", "names a socks5h proxy"),
        ("http://:80", "http://HOST:PORT"),
        ("http://a:b", "HOST:PORT"),
    ],
)
def test_what_cannot_be_used_is_named(value: str, named: str):
    with pytest.raises(BadProxyError, match="ALL_PROXY") as raised:
        outbound_of({"ALL_PROXY": value})
    assert named in str(raised.value)


@for_each(
    "entry, host, port, is_covered",
    [
        ("*", "anything", 1, True),
        ("corp", "corp", 1, True),
        ("corp", "a.corp", 1, True),
        (".corp", "a.corp", 1, True),
        ("*.corp", "a.b.corp", 1, True),
        ("corp", "notcorp", 1, False),
        ("corp:8080", "a.corp", 8080, True),
        ("corp:8080", "a.corp", 80, False),
        ("10.0.0.0/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "11.1.2.3", 1, False),
        ("10.0.0.0/8", "name", 1, False),
        ("127.0.0.1", "127.0.0.1", 1, True),
        ("::1", "[::1]", 1, True),
        ("[::1]", "::1", 1, True),
        ("CORP", "A.Corp.", 1, True),
        (".", "a", 1, False),
    ],
)
def test_no_proxy(entry: str, host: str, port: int, is_covered: bool):
    assert covers(entry, host, port) is is_covered


def test_no_proxy_goes_before_the_proxy():
    found = outbound_of({"HTTPS_PROXY": CORP, "NO_PROXY": "a, openai.com"})
    assert found.proxy_for("https", "api.openai.com", 443) is None
    assert found.proxy_for("https", "api.anthropic.com", 443) is not None


def test_a_socks_proxy_is_refused_only_where_it_would_be_taken():
    http = {"HTTP_PROXY": "http://corp:3128", "ALL_PROXY": "socks5://gate"}
    with pytest.raises(BadProxyError, match="ALL_PROXY names a socks5 proxy"):
        outbound_of(http)
    found = outbound_of({**http, "HTTPS_PROXY": "http://corp:3128"})
    assert [way and way.host for way in (found.https, found.http)] == ["corp", "corp"]


PEM = b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
OURS = PEM % b"proxy"


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "SYSTEM_BUNDLES", ())


def bundles(folder: Path, environment: dict[str, str], *, everything: bool = False):
    return write_bundles(folder, environment, OURS, everything=everything)


def test_without_any_variable_the_default_roots_stay_trusted(tmp_path: Path):
    written = bundles(tmp_path, {})
    content = Path(written["SSL_CERT_FILE"]).read_bytes()
    assert Path(certifi.where()).read_bytes() in content
    assert content.endswith(OURS)
    assert "GIT_SSL_CAINFO" not in written, "git calls no LLM"


def test_the_first_store_that_can_be_asked_for_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in "ab":
        (tmp_path / name).write_bytes(PEM % name.encode())
    stores = [str(tmp_path / name) for name in ("x" * 300, "a", "y" * 300, "b")]
    monkeypatch.setattr(authorities, "SYSTEM_BUNDLES", stores)
    roots = read_trust({}).roots
    assert (PEM % b"a" in roots, PEM % b"b" in roots) == (True, False)


@for_each("name", ["NODE_EXTRA_CA_CERTS", "DENO_CERT"])
def test_what_a_client_adds_to_its_roots_is_the_authority_alone(tmp_path: Path, name: str):
    assert Path(bundles(tmp_path, {})[name]).read_bytes() == OURS


@pytest.mark.parametrize("variable", [each.name for each in authorities.VARIABLES])
def test_what_the_user_named_is_kept(tmp_path: Path, variable: str, no_store: None):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    written = bundles(tmp_path, {variable: str(own)})
    content = Path(written[variable]).read_bytes()
    assert content == PEM % b"own" + b"\n" + OURS, "and nothing that the user had left out"


def test_a_variable_falls_back_as_its_client_does(tmp_path: Path):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    written = bundles(tmp_path, {"CURL_CA_BUNDLE": str(own)})
    assert PEM % b"own" in Path(written["REQUESTS_CA_BUNDLE"]).read_bytes()
    assert PEM % b"own" not in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_a_folder_and_ssl_cert_dir_are_read(tmp_path: Path):
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "a.pem").write_bytes(PEM % b"a")
    (folder / "hash.0").write_bytes(PEM % b"a")
    (folder / "readme").write_bytes(b"no certificate")
    (folder / "gone").symlink_to("nowhere")
    written = bundles(
        tmp_path, {"REQUESTS_CA_BUNDLE": str(folder), "SSL_CERT_DIR": f"{folder}:/no/such"}
    )
    assert Path(written["REQUESTS_CA_BUNDLE"]).read_bytes().count(PEM % b"a") == 1
    assert PEM % b"a" in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_a_folder_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(authorities, "BUNDLE_BYTES_MAX", 100)
    for name in "abc":
        (tmp_path / name).write_bytes(PEM % name.encode())
    trust = read_trust({"REQUESTS_CA_BUNDLE": str(tmp_path)})
    assert trust.named["REQUESTS_CA_BUNDLE"].count(b"BEGIN") == 1


def test_a_missing_file_gives_one_line_and_the_default(tmp_path: Path):
    missing = tmp_path / "missing.pem"
    trust = read_trust({"SSL_CERT_FILE": str(missing)})
    (line,) = trust.troubles
    assert f"SSL_CERT_FILE names {missing}" in line
    assert "No such file" in line
    written = bundles(tmp_path, {"SSL_CERT_FILE": str(missing)})
    assert trust.roots in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_the_way_out_trusts_all_of_it(tmp_path: Path):
    (tmp_path / "corp.pem").write_bytes(PEM % b"corp")
    trust = read_trust({"NODE_EXTRA_CA_CERTS": str(tmp_path / "corp.pem")})
    assert trust.everything.startswith(Path(certifi.where()).read_bytes())
    assert PEM % b"corp" in trust.everything


def test_everything_sets_what_other_programs_read(tmp_path: Path):
    written = bundles(tmp_path, {}, everything=True)
    assert written.keys() >= {"GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO"}


def test_wget_reads_its_own_file_and_the_bundle(tmp_path: Path):
    (tmp_path / ".wgetrc").write_text("timeout = 7\n")
    written = bundles(tmp_path, {"HOME": str(tmp_path)})
    text = Path(written["WGETRC"]).read_text()
    assert text == f"timeout = 7\n\nca_certificate = {written['SSL_CERT_FILE']}\n"


def test_an_authority_that_wgets_file_names_stays_trusted(tmp_path: Path):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    (tmp_path / "rc").write_text(f"ca_certificate={own}\n")
    written = bundles(tmp_path, {"WGETRC": str(tmp_path / "rc")})
    last = Path(written["WGETRC"]).read_text().split()[-1]
    assert PEM % b"own" in Path(last).read_bytes()
    assert OURS in Path(last).read_bytes()


def test_what_the_proxy_trusts_is_written_and_troubles_are_returned(tmp_path):
    (tmp_path / "corp.pem").write_bytes(b"CORP")
    environment = {
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "corp.pem"),
        "SSL_CERT_FILE": str(tmp_path / "missing.pem"),
    }
    trust = read_trust(environment)
    path, troubles = write_trusted(tmp_path, environment)
    assert path.read_bytes() == trust.everything
    assert b"CORP" in path.read_bytes()
    assert troubles == trust.troubles
    assert "missing.pem" in troubles[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_came_before_the_command_keeps_it_from_starting(tmp_path, number):
    """It is still in the pipe of the loop, whose handler of before is not called any more."""
    before: list[int] = []

    async def start() -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(number, before.append, number)
        os.kill(os.getpid(), number)
        command = [sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')"]
        return await run_command(command, os.environ, inherits=2, on_start=lambda _: None)

    with pytest.raises(CommandCannotStartError, match="interrupted") as error:
        asyncio.run(start())
    assert error.value.exit_code == 128 + number
    assert not (tmp_path / "started").exists()
    assert before == []


def test_a_later_ctrl_c_is_the_commands(tmp_path):
    """The terminal sends it to both."""

    async def start() -> int:
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(3)"]

        def send(_: int) -> None:
            loop.call_later(0.1, os.kill, os.getpid(), signal.SIGINT)

        return await run_command(command, os.environ, inherits=2, on_start=send)

    assert asyncio.run(start()) == 3
