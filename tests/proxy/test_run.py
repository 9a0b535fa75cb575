"""`tokentee run -- COMMAND`: the command runs as always, and its bill is printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.pair import OPENAI, speak
from tests.proxy.upstream import Upstream

pytestmark = pytest.mark.proxy

AGENT = """
import http.client, os, sys, urllib.parse
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
assert url.path == "/v1", url
connection = http.client.HTTPConnection(url.hostname, url.port)
connection.request("POST", url.path + "/chat/completions", sys.argv[1].encode(),
                   {"content-type": "application/json", "x-tokentee-session": "s1"})
sys.stdout.buffer.write(connection.getresponse().read())
sys.exit(7)
"""


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from addon.cli import main; main()", "run",
         "--set", f"confdir={folder}", *words],
        capture_output=True, timeout=60, check=False,
        env=os.environ | {"TOKENTEE_LEDGER": f"sqlite:///{folder}/ledger.db"} | environment,
    )  # fmt: skip


def test_a_command_runs_as_always_and_is_recorded(tmp_path: Path):
    with Upstream(speak(OPENAI)) as upstream:
        body = OPENAI.request(asked=True).decode()
        done = run(
            tmp_path, "--set", "tee_tags=team=search",
            "--", sys.executable, "-c", AGENT, body,
            OPENAI_BASE_URL=f"{upstream.url}/v1",
        )  # fmt: skip
    assert done.returncode == 7, done.stderr.decode()
    assert done.stdout == b"".join(OPENAI.answer(asked=True))
    (row,) = rows.exchanges(tmp_path / "ledger.db")
    assert row["outcome"] == "complete"
    assert row["session_id"] == "s1"
    assert row["tags"]["team"] == "search"
    summary = done.stderr.decode()
    assert row["response_model"] in summary
    assert f"tag:run={row['tags']['run']}" in summary


def test_a_command_without_llm_traffic_says_so(tmp_path: Path):
    done = run(tmp_path, "--", sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    assert "no LLM request passed" in done.stderr.decode()


def test_a_command_that_cannot_be_started_is_said_and_is_127(tmp_path: Path):
    done = run(tmp_path, "--", "/no/such/command")
    assert done.returncode == 127
    assert "cannot run /no/such/command: No such file or directory" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_signal_that_ended_the_command_is_reported_as_by_a_shell(tmp_path: Path):
    done = run(tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15
