"""`tokentee top` beside a proxy: what waits, what is answered, and what has ended."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from addon import cli
from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.pair import OPENAI, headers_for, pair, speak

pytestmark = pytest.mark.proxy


def states(proxy: Mitmdump) -> list[str]:
    words = ["top", "--once", "--ledger", f"sqlite:///{proxy.ledger}"]
    done = CliRunner().invoke(cli.application([cli.BY_NAME["top"]]), words, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    words_of_lines = [line.split() for line in done.output.splitlines() if line]
    return [line[-1] for line in words_of_lines if line[-1] in ("waiting", "answering")]


def test_a_request_waits_and_then_is_answered(tmp_path: Path):
    with pair(tmp_path, with_bare=False) as running:
        gate = running.upstream.gate()
        running.upstream.script = lambda request: replace(speak(OPENAI)(request), gate=gate)
        with Http1(running.tee.address()) as client:
            body = OPENAI.request(asked=None)
            client.send("POST", OPENAI.target, headers_for(OPENAI, "x"), body)
            assert rows.eventually(lambda: states(running.tee) == ["waiting"])
            gate.release()
            assert client.head().status == 200
            assert rows.eventually(lambda: states(running.tee) == ["answering"])
            gate.release(100)
        assert rows.eventually(lambda: states(running.tee) == [])
