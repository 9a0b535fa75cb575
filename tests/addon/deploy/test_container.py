"""The image, built and run by a container engine as the Dockerfile and its next steps say.

By name: it needs an engine, the base image and a package index. Its settings are those that are
written, on ports of loopback that are free, before an upstream on this machine.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from addon.deploy.kinds import write
from tests.proxy.mitmdump import free_port
from tests.proxy.pair import OPENAI, speak
from tests.proxy.upstream import Upstream
from tests.test_wheel import ROOT, uv_command

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
NAME = f"tokentee-test-{os.getpid()}"
LEDGER = "/var/lib/tokentee/tokentee/ledger.sqlite3"
START_SECONDS_MAX = 60


class Engine:
    """docker, or podman in its place."""

    def __init__(self, program: str) -> None:
        self.program = program

    def __call__(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [self.program, *words], capture_output=True, text=True, check=False, cwd=cwd,
            timeout=500, env=os.environ | {"BUILDAH_FORMAT": "docker"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture
def engine() -> Iterator[Engine]:
    for program in ("docker", "podman"):
        made = Engine(program)
        if shutil.which(program) is None:
            continue
        with suppress(AssertionError):
            made("info")
            break
    else:
        pytest.skip("no container engine runs here")
    yield made
    for words in (["rm", "--force", NAME], ["volume", "rm", NAME], ["rmi", NAME]):
        with suppress(AssertionError):
            made(*words)


def test_the_image_is_built_and_records(engine: Engine, tmp_path: Path):
    uv_build = [*uv_command(tmp_path), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path)]
    subprocess.run([*uv_build, str(ROOT)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    context = tmp_path / "context"
    write("docker", context, wheel=wheel)
    config = context / "tokentee.toml"
    port, health = free_port(), free_port()
    with Upstream(speak(OPENAI)) as upstream:
        text = config.read_text().replace("https://api.openai.com", upstream.url)
        text = text.replace("0.0.0.0:8001", f"127.0.0.1:{port}")
        text = text.replace("0.0.0.0:8002", f"127.0.0.1:{free_port()}")
        config.write_text(text.replace("0.0.0.0:9464", f"127.0.0.1:{health}"))
        engine("build", "-t", NAME, ".", cwd=context)
        engine(
            *("run", "--detach", "--name", NAME, "--network", "host"),
            *("--read-only", "--tmpfs", "/tmp", "-v", f"{NAME}:/var/lib/tokentee", NAME),
        )
        until = time.monotonic() + START_SECONDS_MAX
        while not is_ready(health):
            assert time.monotonic() < until, engine("logs", NAME)
            time.sleep(0.2)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        sent = json.dumps(OPENAI.body)
        connection.request("POST", OPENAI.target, sent, {"content-type": "application/json"})
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
        connection.close()

        assert re.match(r"tokentee \d", engine("exec", NAME, "tokentee", "--version"))
        for path in ("/var/lib/tokentee", LEDGER):
            assert engine("exec", NAME, "stat", "--format", "%u %g", path) == "10001 10001"
        assert "readyz" in engine("inspect", "--format", "{{json .Config}}", NAME)
        engine("stop", NAME)
        assert engine("wait", NAME) == "0", engine("logs", NAME)
    # Another container has the ledger of the volume.
    words = ("--rm", "-v", f"{NAME}:/var/lib/tokentee", "--entrypoint", "tokentee", NAME)
    (row,) = json.loads(engine("run", *words, "requests", "--format", "json"))
    assert row["model"].startswith("gpt-4o")


def is_ready(port: int) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).read())
    return False
