"""`tokentee demo` as a newcomer runs it: one command, exit code 0, nothing left behind."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.mitmdump import REPOSITORY

pytestmark = pytest.mark.proxy

TOKENTEE = [sys.executable, "-c", "from addon.cli import main; main()"]


def start_demo(folder: Path, *words: str) -> subprocess.Popen[str]:
    """In a process group of its own, so that what is left of it can be seen."""
    return subprocess.Popen(
        [*TOKENTEE, "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(folder), "TOKENTEE_LEDGER": str(folder / "not-mine.db")},
        start_new_session=True,
    )


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def shown_by_demo(folder: Path, *words: str) -> str:
    demo = start_demo(folder, *words)
    shown, progress = demo.communicate(timeout=100)
    assert demo.returncode == 0, shown + progress
    assert is_gone(demo.pid)
    assert "WRONG" not in shown
    return shown


def test_the_demo_is_one_story_on_one_screen(tmp_path: Path) -> None:
    shown = shown_by_demo(tmp_path)
    lines = shown.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100 + len(str(tmp_path))
    (ledger,) = set(re.findall(r"sqlite:///(\S+)", shown))
    found = {row["response_id"]: row for row in rows.query(Path(ledger), "SELECT * FROM requests")}
    assert found["chatcmpl-one"]["usage_stripped"]
    assert found["chatcmpl-one"]["input_tokens"] == 1_850
    assert found["msg_two"]["cache_read_tokens"] == 11_904
    assert found["chatcmpl-left"]["usage_source"] == "estimated"
    assert found[None]["http_status"] == 429
    assert found[None]["retry_after_ms"] == 20_000
    assert (found["msg_five"]["billing"], found["msg_five"]["cost_picousd"]) == ("plan", None)
    assert f"{found['msg_two']['cost_picousd'] / 10**12:.6f}" in shown
    (limit,) = rows.query(Path(ledger), "SELECT used_ppm FROM quotas")
    assert limit["used_ppm"] == 420_000
    commands = re.findall(r"^  (tokentee .+)$", shown, re.MULTILINE)
    assert len(commands) == 5
    asked = subprocess.run(
        [*TOKENTEE, *shlex.split(commands[1])[1:]], capture_output=True, text=True, check=True
    )
    assert len(asked.stdout.splitlines()) >= 5 + 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_interrupted_it_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    demo = start_demo(tmp_path)
    assert demo.stderr is not None
    assert demo.stdout is not None
    with demo.stderr, demo.stdout:
        for line in demo.stderr:
            if "Sending" in line:
                break
        if how is signal.SIGINT:
            os.killpg(demo.pid, how)  # what a terminal does with Ctrl-C
        else:
            demo.send_signal(how)
        said = demo.stderr.read()
    assert demo.wait(30) != 0
    assert is_gone(demo.pid)
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Here: every mitmdump of this environment ends at once."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import os, sys\n"
        "if any('mitmdump' in word for word in sys.orig_argv):\n"
        "    print('mitmdump: out of order', flush=True)\n"
        "    os._exit(1)\n"
    )
    done = subprocess.run(
        [*TOKENTEE, "demo"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert "the demo's mitmdump did not start" in done.stderr
    assert "out of order" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("tokentee-*"))
