"""No command prints the password of a database URL, whether the URL is well formed or not."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from addon import cli

PASSWORD = "hunter2"
URLS = [
    "postgresql+psycopg://u:hunter2@127.0.0.1:1/d",
    "postgresql+psycopg://u@127.0.0.1:1/d?password=hunter2",
    "postgresql+psycopg://u:hunter2[bad",
    "postgresql://u:hunter2#127.0.0.1/d",
    "postgresql://u:hunter2%40127.0.0.1/d",
    "postgresql://u/hunter2@127.0.0.1/d",
    "mysql://u:hunter2",
    "u:hunter2",
    "host=127.0.0.1 password='hunter2 hunter2'",
]
COMMANDS = [
    "report",
    "top --once",
    "show x",
    "export {folder}",
    "reprice --dry-run",
    "reconcile {file}",
    "sync sqlite:///{folder}/none.db {url}",
    "sync {url} sqlite:///{folder}/none.db",
    "replay {file}",
    "rebuild {file}",
    "verify",
    "import {folder}",
    "serve --port 0",
    "budget status",
    "db upgrade",
    "db current",
    "db check",
    "db drop",
    "names suggest",
    "run --config {config}",
    "doctor",
]


CASES = [
    *(pytest.param("report", url) for url in URLS),
    *(pytest.param(command, url) for command in COMMANDS[1:] for url in (URLS[0], URLS[3])),
]


@pytest.mark.parametrize(("command", "url"), CASES)
def test_no_command_prints_a_password(
    command: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "tokentee.toml"
    config.write_text(
        f'ledger = "{url}"\n[otlp]\nendpoint = "http://u:hunter2@127.0.0.1:1"\n'
        '[[upstream]]\nname = "a"\nurl = "https://u:hunter2@h"\nlisten = "127.0.0.1:0"\n'
    )
    lines = tmp_path / "lines.jsonl"
    lines.write_text("{}\n")
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("TOKENTEE_LEDGER", url)
    monkeypatch.chdir(tmp_path / "..")
    places = {"folder": tmp_path, "file": lines, "config": config, "url": url}
    words = [word.format(**places) for word in command.split()]
    monkeypatch.setattr(sys, "argv", ["tokentee", *words])
    with contextlib.suppress(SystemExit):
        cli.main()
    printed = capfd.readouterr()
    assert printed.out + printed.err
    assert PASSWORD not in printed.out + printed.err


@pytest.mark.process
@pytest.mark.parametrize("url", [URLS[0], URLS[3]])
def test_run_prints_no_password(url: str, tmp_path: Path) -> None:
    environment = os.environ | {"TOKENTEE_LEDGER": url, "XDG_DATA_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", "from addon.cli import main; main()", "run", "--", "true"],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert b"u:***" in ran.stderr
    assert PASSWORD.encode() not in ran.stdout + ran.stderr
