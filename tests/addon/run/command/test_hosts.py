"""Which hosts are decrypted, and connections that went past the recorder."""

import asyncio
import os
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from addon.run.command import child
from addon.run.command.child import Watch, resolve, warnings
from addon.run.command.hosts import (
    LlmHosts,
    NamedHost,
    address_of,
    base_url_variable,
    default_hosts,
    from_base_urls,
    is_llm_name,
    javascript_pattern,
    no_proxy_for,
    origin_of,
)
from ledger.model import provider_table
from tests.named import for_each

GATEWAY = LlmHosts(named=(NamedHost(name="gw.corp", port=8443), NamedHost(name="llm.corp")))


@for_each(
    "host, port, is_llm",
    [
        ("api.openai.com", 443, True),
        ("API.OpenAI.com.", 443, True),
        ("eu.api.openai.com", 443, True),
        ("bedrock-runtime.us-east-1.amazonaws.com", 443, True),
        ("gw.corp", 8443, True),
        ("gw.corp", 443, False),
        ("llm.corp", 1, True),
        ("sub.llm.corp", 1, False),
        ("github.com", 443, False),
        ("s3.amazonaws.com", 443, False),
        ("huggingface.co", 443, False),
        ("notopenai.com", 443, False),
        ("api.openai.com.evil.example", 443, False),
        ("registry.npmjs.org", 443, False),
    ],
)
def test_the_table_and_what_is_named_count(host: str, port: int, is_llm: bool):
    assert ((host, port) in GATEWAY) is is_llm
    if host == host.lower().rstrip("."):
        pattern = re.compile(javascript_pattern(GATEWAY), re.IGNORECASE)
        assert bool(pattern.search(f"{host}:{port}")) is is_llm, "the preload leads the same"


def test_everything_is_everything():
    assert ("github.com", 22) in LlmHosts(everything=True)
    assert re.search(javascript_pattern(LlmHosts(everything=True)), "github.com:22")


def test_base_urls_of_the_user_name_hosts():
    found = from_base_urls(
        {
            "OPENAI_BASE_URL": "https://gw.corp:8443/v1",
            "OPENAI_API_BASE": "https://gw.corp:8443/v1",
            "ANTHROPIC_BASE_URL": "http://localhost:4000",
            "GROQ_BASE_URL": "https://[bad",
            "CO_API_URL": "https://host:notaport",
            "OTHER": "https://other.example",
        }
    )
    assert found == (NamedHost(name="gw.corp", port=8443),)


@for_each(
    "before, after",
    [
        pytest.param("", ["localhost", "127.0.0.1", "::1"], id="none"),
        pytest.param(".corp", ["localhost", "127.0.0.1", "::1"], id="covers-a-named-one"),
        pytest.param("*", ["localhost", "127.0.0.1", "::1"], id="all"),
        pytest.param("api.deepseek.com", ["localhost", "127.0.0.1", "::1"], id="in-the-table"),
        pytest.param("openai.com", ["localhost", "127.0.0.1", "::1"], id="a-domain-of-one"),
        pytest.param(
            "10.0.0.0/8, db.local git.corp",
            ["10.0.0.0/8", "db.local", "git.corp", "localhost", "127.0.0.1", "::1"],
            id="others-stay",
        ),
    ],
)
def test_no_proxy_leads_no_llm_host_past(before: str, after: list[str]):
    assert no_proxy_for(before, GATEWAY) == after


def test_loopback_is_led_where_tee_hosts_names_it():
    hosts = LlmHosts(named=(NamedHost(name="127.0.0.1", port=11434),))
    assert no_proxy_for("", hosts) == ["localhost", "::1"]


@for_each(
    "url, address, origin",
    [
        ("https://h/v1", ("h", 443), "https://h"),
        ("http://u:p@h:81/", ("h", 81), "http://h:81"),
        ("http://[::1]:9", ("::1", 9), "http://[::1]:9"),
        ("http://h:x/", ("", 0), "http://h:x"),
    ],
)
def test_parts_of_a_url(url: str, address: tuple[str, int], origin: str):
    assert address_of(url) == address
    assert origin_of(url) == origin


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LINES = {
    "openai": ("040A0A0A:01BB", "01", "11"),
    "connecting": ("050A0A0A:01BB", "02", "12"),
    "http": ("040A0A0A:0050", "01", "13"),
    "ended": ("040A0A0A:01BB", "06", "14"),
    "ollama": ("0100007F:2CAA", "01", "15"),
    "proxy": ("0100007F:1F90", "01", "16"),
    "of-another-process": ("040A0A0A:01BB", "01", "17"),
}


def table(**rows: tuple[str, str, str]) -> str:
    lines = [
        f" 0: 0100007F:9999 {remote} {state} 0:0 0:0 0 0 0 {inode}"
        for remote, state, inode in rows.values()
    ]
    return "\n".join([HEAD, *lines])


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process 1 with a child 2 that holds the connections."""
    for pid, children in (("1", "2 "), ("2", "")):
        (tmp_path / pid / "net").mkdir(parents=True)
        (tmp_path / pid / "fd").mkdir()
        (tmp_path / pid / "task" / pid).mkdir(parents=True)
        (tmp_path / pid / "task" / pid / "children").write_text(children)
    (tmp_path / "1" / "net" / "tcp").write_text(table(**LINES))
    v6 = {"v6": ("00000000000000000000000001000000:2CAA", "01", "18"),
          "mapped": ("0000000000000000FFFF0000040A0A0A:01BB", "01", "19")}  # fmt: skip
    (tmp_path / "1" / "net" / "tcp6").write_text(table(**v6) + "\nbad line\n")
    (tmp_path / "2" / "fd" / "0").symlink_to("/dev/null")
    for inode in (11, 12, 13, 14, 15, 16, 18, 19):
        (tmp_path / "2" / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
    return tmp_path


def test_direct_connections_of_the_tree_are_counted_once(proc: Path):
    watch = Watch(1, own_port=8080, proc=proc)
    watch.sample()
    watch.sample()
    assert watch.seen == {
        ("10.10.10.4", 443): 2,
        ("10.10.10.5", 443): 1,
        ("127.0.0.1", 11434): 1,
        ("::1", 11434): 1,
    }


def test_connections_that_are_over_hide_none(proc: Path):
    """They stay in the table for a minute: 20 000 after a test of load."""
    over = {str(number): ("0100007F:2CAA", "06", "0") for number in range(20_000)}
    (proc / "1" / "net" / "tcp").write_text(table(**over, **LINES))
    watch = Watch(1, own_port=8080, proc=proc)
    watch.sample()
    assert watch.seen["10.10.10.4", 443] == 2


def test_a_process_without_such_connections(proc: Path):
    (proc / "1" / "net" / "tcp").write_text(HEAD)
    (proc / "1" / "net" / "tcp6").unlink()
    watch = Watch(1, own_port=0, proc=proc)
    watch.sample()
    assert not watch.seen


def test_a_tree_is_bounded(proc: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "PROCESSES_MAX", 1)
    watch = Watch(1, own_port=8080, proc=proc)
    watch.sample()
    assert not watch.seen


def test_where_there_is_no_proc_nothing_is_watched(tmp_path: Path):
    asyncio.run(Watch(1, own_port=0, proc=tmp_path).run())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_connection_is_seen(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(child, "LOCAL_PORT_MAX", 65_536)
        with socket.create_connection(("127.0.0.1", port)):
            watch = Watch(os.getpid(), own_port=0)
            # The kernel's table changes while it is read, and may leave out what was there.
            for _ in range(20):
                watch.sample()
    assert watch.seen == {("127.0.0.1", port): 1}


def test_names_that_do_not_resolve_are_left_out():
    found = asyncio.run(resolve(["localhost", "no.such.host.invalid"]))
    assert set(found.values()) == {("localhost",)}
    assert "127.0.0.1" in found


@for_each(
    "host, is_named_so",
    [
        ("api.acme.ai", True),
        ("llm.corp", True),
        ("eu-inference.acme.example", True),
        ("MODELS.acme.example.", True),
        ("registry.npmjs.org", False),
        ("email.acme.example", False),
        ("models.dev", False),
        ("docs.acme.ai", False),
        ("trace.wandb.ai", False),
    ],
)
def test_names_that_look_like_sellers_of_models(host: str, is_named_so: bool):
    assert is_llm_name(host) is is_named_so


def test_every_seller_with_hosts_of_its_own_is_recognised_by_one():
    """But for patterns whose parts a user chooses: the name of a resource, a network, a tenant."""
    found = {provider_table.provider_of(name, "") for name in default_hosts()}
    rows = [row for row in provider_table.TABLE.rows if row.hosts and not row.hosts_are_shared]
    missing = {row.name for row in rows} - found
    assert missing == {"oci", "ovhcloud", "sap"}


def test_each_name_that_is_resolved_is_one_of_a_seller():
    strangers = [name for name in default_hosts() if provider_table.TABLE.at(name) is None]
    assert not strangers


@for_each(
    "host, variable",
    [
        (
            "bedrock-runtime.ap-south-2.amazonaws.com",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME=http://127.0.0.1:8080",
        ),
        ("dashscope.aliyuncs.com", "DASHSCOPE_HTTP_BASE_URL=http://127.0.0.1:8080/api/v1"),
        ("api.replicate.com", "REPLICATE_BASE_URL=http://127.0.0.1:8080"),
        ("stream.replicate.com", "http://127.0.0.1:8080 as its base URL, with the same path"),
    ],
)
def test_the_variable_that_leads_to_a_reverse_proxy(host: str, variable: str):
    assert base_url_variable(host) == variable


def test_addresses_are_resolved_when_the_first_direct_connection_is_seen(
    proc: Path, monkeypatch: pytest.MonkeyPatch
):
    """They may be others when the command has ended."""
    answers: list[dict[str, tuple[str, ...]]] = [
        {"10.10.10.4": ("api.acme.ai",)},
        {"10.10.10.9": ("api.acme.ai",)},
    ]

    async def resolved(hosts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        assert hosts == ("api.acme.ai",)
        return answers.pop(0)

    async def watched() -> dict[str, tuple[str, ...]]:
        watch = Watch(1, own_port=8080, names=["api.acme.ai"], proc=proc)
        assert await watch.names() == {}
        watching = asyncio.create_task(watch.run())
        while len(answers) == 2:
            await asyncio.sleep(0.01)
        watching.cancel()
        return await watch.names()

    monkeypatch.setattr(child, "resolve", resolved)
    assert asyncio.run(watched()) == dict.fromkeys(("10.10.10.4", "10.10.10.9"), ("api.acme.ai",))


def test_connections_are_seen_while_names_are_resolved(proc: Path, monkeypatch: pytest.MonkeyPatch):
    """Which takes seconds where a name server does not answer, and all threads of the loop."""
    monkeypatch.setattr(child, "PERIOD_SECONDS", 0.01)

    async def watched() -> int:
        loop, answered = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, answered.wait, 60)
        watch = Watch(1, own_port=8080, names=["api.acme.ai"], proc=proc)
        watching = asyncio.create_task(watch.run())
        while not watch.seen:
            await asyncio.sleep(0.01)
        (proc / "2" / "fd" / "99").symlink_to("socket:[99]")
        (proc / "1" / "net" / "tcp").write_text(table(later=("090A0A0A:01BB", "01", "99")))
        async with asyncio.timeout(50):  # a look that took long is followed by a long pause
            while ("10.10.10.9", 443) not in watch.seen:
                await asyncio.sleep(0.01)
        watching.cancel()
        answered.set()
        return watch.seen["10.10.10.9", 443]

    assert asyncio.run(watched())


def test_what_is_said():
    seen = {
        ("10.0.0.1", 443): 1,
        ("10.0.0.2", 443): 2,
        ("10.0.0.9", 443): 7,
        ("127.0.0.1", 11434): 3,
        ("::1", 1234): 1,
    }
    shared = ("bedrock-runtime.eu-west-1.amazonaws.com", "b", "c", "d")
    seen["10.0.0.3", 443] = 1
    names = dict.fromkeys(("10.0.0.1", "10.0.0.2"), ("api.openai.com",)) | {"10.0.0.3": shared}
    openai, bedrock, ollama, studio = warnings(seen, names)
    assert openai.startswith("3 connections to api.openai.com went past the recorder")
    assert "--mode reverse:https://api.openai.com@8080" in openai
    assert openai.endswith("OPENAI_BASE_URL=http://127.0.0.1:8080/v1")
    assert bedrock.startswith(f"1 connection to {shared[0]} or b or c went past the recorder")
    assert bedrock.endswith("AWS_ENDPOINT_URL_BEDROCK_RUNTIME=http://127.0.0.1:8080")
    assert ollama.startswith("3 connections to Ollama at 127.0.0.1:11434 went past")
    assert "--set tee_hosts=127.0.0.1:11434" in ollama
    assert studio.startswith("1 connection to LM Studio at [::1]:1234 went past")
