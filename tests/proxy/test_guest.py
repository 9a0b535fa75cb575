"""What our addon changes in a process, seen from outside of it: under real traffic, with another
addon beside it, in a program that embeds mitmproxy, and after it has been removed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.addon.proxy.test_guest import WRAPPED
from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.mitmdump import REPOSITORY, SCRIPTS, TEE, Mitmdump
from tests.proxy.pair import OPENAI, exchange, speak
from tests.proxy.upstream import Upstream

pytestmark = pytest.mark.proxy

PROBE = SCRIPTS / "probe.py"


def probed(proxy: Mitmdump) -> dict[str, Any]:
    with Http1(proxy.address()) as client:
        client.send("GET", "/probe", [("Host", "a")])
        found: dict[str, Any] = json.loads(client.receive().body)
    return found


@pytest.mark.parametrize("tool", ["mitmdump", "mitmweb"])
def test_another_addon_finds_one_wrapped_set_and_afterwards_nothing(tmp_path: Path, tool: str):
    script = tmp_path / "tee.py"
    script.write_text(TEE.read_text())
    with Upstream(speak(OPENAI)) as upstream:
        options = {
            "ledger_url": f"sqlite:///{tmp_path}/ledger.db",
            "tee_hosts": f"127.0.0.1:{upstream.port}=aivene",
        }
        if tool == "mitmweb":
            options |= {"web_open_browser": "false", "web_port": "0"}
        with Mitmdump(
            tmp_path / "proxy",
            upstreams=[upstream.url],
            script=script,
            beside=[PROBE],
            options=options,
            environment={"PYTHONPATH": str(REPOSITORY)},
            tool=tool,
        ) as proxy:
            assert proxy.wait_for_log("tokentee: ledger ")
            assert proxy.wait_for_log("a guest")
            (line,) = [each for each in proxy.log.splitlines() if "a guest" in each]
            assert "changes nothing else" in line
            began = probed(proxy)
            assert set(began["changed"]) == WRAPPED
            exchange(proxy, OPENAI, "one")
            assert set(probed(proxy)["changed"]) == WRAPPED
            script.unlink()
            assert proxy.wait_for_log("the script was removed")
            assert rows.eventually(lambda: probed(proxy)["changed"] == [])
            removed = probed(proxy)
            assert removed["options"]["connection_strategy"] == "eager"
            assert began["options"]["connection_strategy"] == "lazy"


def embedded(tmp_path: Path, *argv0: str) -> dict[str, Any]:
    with Upstream(speak(OPENAI)) as upstream:
        done = subprocess.run(
            [
                sys.executable,
                str(SCRIPTS / "embedding.py"),
                upstream.url,
                f"sqlite:///{tmp_path}/ledger.db",
                *argv0,
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_program_that_embeds_mitmproxy_finds_one_wrapped_set_and_afterwards_nothing(
    tmp_path: Path,
):
    found = embedded(tmp_path)
    assert set(found["ours"]) == set(found["beside"]) == WRAPPED
    assert found["removed"] == []
    assert found["strategy"] == ["eager", "eager"]


def test_a_host_becomes_a_guest_when_another_script_comes(tmp_path: Path):
    found = embedded(tmp_path, "mitmdump")
    assert set(found["ours"]) > WRAPPED
    assert set(found["beside"]) == WRAPPED
    assert found["removed"] == []
    assert found["strategy"] == ["eager", "eager"]
