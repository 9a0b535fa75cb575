"""Real agents are recorded, then their logs are imported into the same ledger: no row, no cent more."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients import playing
from tests.clients.matrix import CLIENTS, KEYS, Client
from tests.proxy import rows

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not playing.can_play(), reason="unshare may not make namespaces here"),
    pytest.mark.timeout(1800),
]
CONTINUE = f"""\
name: Local
version: 1.0.0
schema: v1
models:
  - name: gpt-4o
    provider: openai
    model: gpt-4o
    apiKey: {KEYS["OPENAI_API_KEY"]}
"""
OPENAI = "https://api.openai.com/v1"
_IN_MATRIX = ("Claude Code", "Claude Code, plan", "Codex", "Codex, plan", "Gemini CLI",
              "OpenCode, OpenAI", "OpenCode, Anthropic")  # fmt: skip
AGENTS = [
    *(replace(client, keeps_home=True) for client in CLIENTS if client.name in _IN_MATRIX),
    Client(
        name="Qwen Code",
        packages=("@qwen-code/qwen-code",),
        arguments=("qwen", "--auth-type", "openai", "-p", "Say hi"),
        environment={"OPENAI_BASE_URL": OPENAI, "OPENAI_MODEL": "gpt-4o"},
        node="22",
        keeps_home=True,
    ),
    Client(
        name="Copilot, own provider",
        packages=("@github/copilot",),
        arguments=("copilot", "--allow-all-tools", "-p", "Say hi"),
        environment={
            "COPILOT_PROVIDER_BASE_URL": OPENAI,
            "COPILOT_PROVIDER_API_KEY": KEYS["OPENAI_API_KEY"],
            "COPILOT_MODEL": "gpt-4o",
            "COPILOT_OFFLINE": "true",
        },
        node="24",
        keeps_home=True,
    ),
    Client(
        name="pi",
        packages=("@mariozechner/pi-coding-agent",),
        arguments=("pi", "--provider", "openai", "--model", "gpt-4o", "-p", "Say hi"),
        node="22",
        keeps_home=True,
    ),
    Client(
        name="Continue",
        packages=("@continuedev/cli",),
        arguments=("cn", "--config", "../continue.yaml", "-p", "Say hi"),
        files={"continue.yaml": CONTINUE},
        node="22",
        keeps_home=True,
    ),
    Client(
        name="Cline",
        packages=("cline",),
        arguments=("sh", "-c", f"cline auth -p openai-native -k {KEYS['OPENAI_API_KEY']} -m gpt-4o; "
                   "cline 'Say hi'"),
        node="22",
        keeps_home=True,
    ),
]  # fmt: skip
_IMPORT = """
from datetime import timedelta
from addon.parts.agent_logs import booking
booking.answers.__kwdefaults__["running_for"] = timedelta(0)
from addon.cli import main
main()
"""
_TOTALS = "SELECT count(*) AS requests, sum(cost_picousd) AS cost FROM requests"


def test_what_was_recorded_is_not_booked_again(tmp_path: Path):
    played = playing.play(AGENTS, tmp_path, variants=["run"])["run"]
    ledger = tmp_path / "run/ledger.db"
    before = rows.query(ledger, _TOTALS)
    quiet = [client.name for client in AGENTS if not played.rows_of(client)]
    said = {}
    for client in AGENTS:
        home = tmp_path / "run/homes" / playing.name_of(client)
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT, "import", "--ledger", f"sqlite:///{ledger}"],
            cwd=playing.ROOT, env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said[client.name] = done.stdout + done.stderr
    # Cline leaves a daemon, which `run` names with the line that ends it.
    left = re.findall(r"end it: kill ([0-9 ]+)", played.stderr)
    for process in " ".join(left).split():
        os.kill(int(process), signal.SIGTERM)
    assert rows.query(ledger, _TOTALS) == before, said
    assert left, played.stderr
    assert not quiet, {name: played.clients[playing.name_of(client)] for client in AGENTS
                       for name in quiet if client.name == name}  # fmt: skip
