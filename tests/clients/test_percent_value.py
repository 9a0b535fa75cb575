"""What a percent buys, by real agents on a plan whose percents follow a known value."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients import playing
from tests.clients.answers import LONG, LONG_CALLS
from tests.clients.matrix import CLIENTS
from tests.clients.upstream import PERCENT_PICOUSD

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not playing.can_play(), reason="unshare may not make namespaces here"),
    pytest.mark.timeout(1200),
]
MODELS = {"Claude Code, plan": "claude-sonnet-4-5", "Codex, plan": "gpt-5"}
AGENTS = [
    replace(
        client,
        name=f"{LONG}{client.name}",
        arguments=(*client.arguments, "--model", MODELS[client.name]),
        seconds=400,
    )
    for client in CLIENTS
    if client.name in MODELS
]
TRUE_USD = PERCENT_PICOUSD / 10**12


def test_the_value_of_a_percent_is_stated(tmp_path: Path):
    played = playing.play(AGENTS, tmp_path, variants=["run"])["run"]
    assert [len(played.rows_of(agent)) for agent in AGENTS] == [LONG_CALLS, LONG_CALLS]
    words = ["limits", "--value", "--format", "json", "--ledger", str(tmp_path / "run/ledger.db")]
    done = subprocess.run(
        [sys.executable, "-c", "from addon.cli import main; main()", *words],
        cwd=playing.ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    stated = [row for row in json.loads(done.stdout) if row["window"] == "5h"]
    assert [(row["provider"], row["model"]) for row in stated] == [
        *(("anthropic", model) for model in (None, "claude-sonnet-4-5")),
        *(("openai", model) for model in (None, "gpt-5")),
    ]
    for row in stated:
        assert row["low"] <= TRUE_USD <= row["high"]
        assert row["usd_per_percent"] == pytest.approx(TRUE_USD, rel=0.1)
        assert not row["unrecorded_percent"]
