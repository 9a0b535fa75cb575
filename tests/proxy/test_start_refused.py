"""Never a command behind a proxy that is not there: each cause ends the start before the command."""

import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.named import named
from tests.proxy.test_run import run

pytestmark = pytest.mark.proxy

type Words = list[str]


def _ledger(path: str) -> Words:
    return ["--set", f"ledger_url=sqlite:///{path}"]


def _not_a_database(folder: Path) -> Words:
    (folder / "junk.db").write_text("not a database, but long enough to be looked at" * 100)
    return _ledger(f"{folder}/junk.db")


def _newer(folder: Path) -> Words:
    with sqlite3.connect(folder / "newer.db") as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES ('9999')")
    made.close()
    return _ledger(f"{folder}/newer.db")


def _port_taken(folder: Path) -> Words:
    del folder
    taken = socket.create_server(("127.0.0.1", 0))
    TAKEN.append(taken)
    return ["--set", f"tee_metrics={taken.getsockname()[1]}"]


def _no_home(folder: Path) -> Words:
    (folder / "file").write_text("")
    return ["--set", f"confdir={folder}/file/mitmproxy"]


def _bad_script(folder: Path) -> Words:
    (folder / "bad.py").write_text("import nothing_of_this_name\n")
    return ["-s", f"{folder}/bad.py"]


TAKEN: list[socket.socket] = []
CAUSES: dict[str, tuple[Callable[[Path], Words], str]] = {
    "a full disk": (lambda _: _ledger("/dev/full"), "full"),
    "not a database": (_not_a_database, "not a database"),
    "a newer schema": (_newer, "newer tokentee"),
    "a folder that cannot be made": (lambda _: _ledger("/proc/none/x.db"), "cannot create"),
    "a capture folder that cannot be made": (lambda _: ["--set", "tee_capture=/proc/x"], "capture"),
    "a port of metrics that is taken": (_port_taken, "name another port"),
    "a folder of certificates that cannot be made": (_no_home, "cannot keep"),
    "a price file that is missing": (lambda _: ["--set", "tee_prices=/nowhere.toml"], "nowhere"),
    "a script that cannot be loaded": (_bad_script, "nothing_of_this_name"),
    "a bad option": (lambda _: ["--set", "ledger_commit=never"], "ledger_commit"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_command_is_not_started(cause: str, tmp_path: Path):
    make, reason = CAUSES[cause]
    started = tmp_path / "started"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = make(tmp_path)
    environment = {"TMPDIR": str(temporary)}
    done = run(tmp_path, *words, "--", "touch", str(started), **environment)
    text = done.stderr.decode()
    assert done.returncode == 2, text
    assert not started.exists()
    assert reason in text
    if cause != "a script that cannot be loaded":  # mitmproxy shows what a script raises
        assert "Traceback" not in text
        assert len(text.splitlines()) <= 2, text
    assert list(temporary.iterdir()) == []
    for each in TAKEN:
        each.close()
    TAKEN.clear()


def test_unrecorded_ok_starts_it_as_if_we_were_not_there(tmp_path: Path):
    code = (
        "import os, sys; print(sorted(n for n in os.environ if 'proxy' in n.lower())); sys.exit(7)"
    )
    done = run(
        tmp_path, "--unrecorded-ok", *_not_a_database(tmp_path), "--", sys.executable, "-c", code
    )
    assert done.returncode == 7
    inherited = sorted(name for name in os.environ if "proxy" in name.lower())
    kept = [name for name in inherited if name not in PROXY_VARIABLES]
    assert done.stdout.decode().strip() == str(kept)
    assert b"the command runs without a recorder" in done.stderr


PROXY_VARIABLES = {
    "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY",
    "no_proxy",
}  # fmt: skip


def test_a_signal_that_ends_it_there_is_reported_as_a_shell_does(tmp_path: Path):
    words = ["--unrecorded-ok", *_not_a_database(tmp_path)]
    done = run(tmp_path, *words, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM  # we are the command
    done = run(tmp_path, *words, "--", "no-such-command")
    assert done.returncode == 127


@pytest.mark.parametrize("more", [[], ["--unrecorded-ok"]], ids=["refuse", "unrecorded-ok"])
def test_a_proxy_that_stops_under_a_command_ends_it_loudly(more: list[str], tmp_path: Path):
    script = tmp_path / "stop.py"
    marker = tmp_path / "marker"
    script.write_text(
        "import asyncio, pathlib\nfrom mitmproxy import ctx\n"
        "async def wait():\n"
        f"    while not pathlib.Path({str(marker)!r}).exists():\n        await asyncio.sleep(0.05)\n"
        "    ctx.master.shutdown()\n"
        "def running():\n    global task\n    task = asyncio.get_running_loop().create_task(wait())\n"
    )
    code = (
        f"import time; marker = open({str(marker)!r}, 'a'); print('started', file=marker, flush=True); "
        "time.sleep(60); print('survived', file=marker)"
    )
    done = run(tmp_path, *more, "-s", str(script), "--", sys.executable, "-c", code)
    text = done.stderr.decode()
    assert done.returncode == 1, text
    assert marker.read_text() == "started\n"  # once, and not to its end
    assert "THE PROXY STOPPED WHILE THE COMMAND RAN" in text
    assert "not started" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("words", "advice"),
    named({
        "listen": (["--listen", "127.0.0.1:{}"], "--listen HOST:PORT"),
        "mitmproxy's option": (["--listen-port", "{}"], "--listen HOST:PORT"),
        "mode": (["--mode", "reverse:https://a.example@127.0.0.1:{}"],
            "--mode reverse:https://a.example@HOST:PORT"),
        "workers": (["--workers", "2", "--listen", "127.0.0.1:{}"], "--listen HOST:PORT"),
    }),
)  # fmt: skip
def test_a_port_that_is_taken_is_one_line(words: list[str], advice: str, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, *(word.replace("{}", port) for word in words))
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode in (1, 2)
    assert line.startswith("tokentee: cannot listen on 127.0.0.1:")
    assert line.count("in use") == 1
    assert "Errno" not in line
    assert line.endswith(advice)
