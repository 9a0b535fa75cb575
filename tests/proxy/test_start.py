"""Bad starts: one clear line, exit code 1, no traceback; and options that are said to be odd. Never is a
command behind a proxy that is not there: each cause ends the start before the command.
"""

import os
import runpy
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.store import db
from tests.named import named
from tests.proxy.mitmdump import REPOSITORY, TEE, Mitmdump
from tests.proxy.test_run import PROXY_VARIABLES, run

pytestmark = pytest.mark.proxy

NOBODY = "http://127.0.0.1:9"

ORDINARY = ("Loading script", "listening at", " logged during startup, exiting")


def start_badly(proxy: Mitmdump) -> list[str]:
    """The lines that are not mitmproxy's ordinary ones."""
    proxy.launch()
    assert proxy.wait() == 1, proxy.log
    assert "Traceback" not in proxy.log
    return [line for line in proxy.log.splitlines() if not any(each in line for each in ORDINARY)]


def test_a_bad_option_ends_the_start(tmp_path: Path) -> None:
    """`test_options` has the values of every option, `CAUSES` other causes."""
    options = {"tee_inject": "maybe"}
    (line,) = start_badly(Mitmdump(tmp_path, upstreams=[NOBODY], options=options))
    assert "tokentee" in line
    assert "tee_inject: 'maybe'" in line


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("Dear Sir or Madam, " * 100)
    options = {"ledger_url": f"sqlite:///{tmp_path}/letter.db"}
    (line,) = start_badly(Mitmdump(tmp_path / "conf", upstreams=[NOBODY], options=options))
    assert "letter.db" in line
    assert (tmp_path / "letter.db").read_text().startswith("Dear Sir")


def start_customized(folder: Path, site: str) -> list[str]:
    """In an interpreter that runs this first."""
    (folder / "sitecustomize.py").write_text(f"import sys\n{site}\n")
    return start_badly(
        Mitmdump(
            folder / "conf",
            upstreams=[NOBODY],
            environment={"PYTHONPATH": str(folder)},
            has_own_interpreter=True,
        )
    )


@pytest.mark.ci
def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """As in an environment that has mitmproxy and not this project's dependencies."""
    missing = ("genai_prices", "msgspec", "orjson", "platformdirs", "sqlalchemy")
    lines = start_customized(tmp_path, f"sys.modules.update(dict.fromkeys({missing!r}))")
    assert any("uv run mitmdump" in line for line in lines)
    assert any(f"cannot import {name} " in line for line in lines for name in missing)
    assert len(lines) == 1


@pytest.mark.ci
def test_the_standalone_binary_is_recognised(tmp_path: Path) -> None:
    """It cannot import packages, and says what to do instead."""
    site = "sys.frozen = True\nsys.modules['addon.proxy.recorder'] = None"
    (line,) = start_customized(tmp_path, site)
    assert "standalone binary" in line
    assert "uv run mitmdump" in line


@pytest.mark.parametrize("error", [SyntaxError("invalid syntax"), ImportError("cannot import")])
def test_a_python_that_is_too_old_is_recognised(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It can parse our modules or import their names, or neither."""

    class Old:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "addon.proxy.recorder":
                raise error

    monkeypatch.delitem(sys.modules, "addon.proxy.recorder", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Old(), *sys.meta_path])
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    assert runpy.run_path(str(TEE))["addons"] == []
    (line,) = caplog.messages
    assert "Python 3.11 is too old for it, which needs 3.12" in line


def test_a_mistyped_option_ends_the_start(tmp_path: Path) -> None:
    """mitmproxy itself ignores names that it does not know. One start shows both kinds."""
    options = {"tee_host": "x", "confdri": "y"}
    lines = start_badly(Mitmdump(tmp_path, upstreams=[NOBODY], options=options))
    assert any("'tee_host': did you mean tee_hosts?" in line for line in lines)
    assert any("'confdri': did you mean confdir?" in line for line in lines)
    assert len(lines) == 2


def test_a_good_start_says_what_is_odd(tmp_path: Path) -> None:
    """Large bodies are streamed past us; the operator is told.

    And without `ledger_url` the ledger is where the environment says, for its owner alone.
    """
    ledger = tmp_path / "deep" / "down" / "mine.db"
    with Mitmdump(
        tmp_path,
        upstreams=[NOBODY],
        options={"ledger_url": "", "stream_large_bodies": "1m"},
        environment={"TOKENTEE_LEDGER": f"sqlite:///{ledger}"},
        has_own_interpreter=True,
    ) as proxy:
        assert proxy.wait_for_log("usage is not asked for in larger requests")
        assert ledger.stat().st_mode & 0o777 == 0o600


def test_by_default_the_ledger_is_in_the_users_data_folder(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    with Mitmdump(
        tmp_path, upstreams=[NOBODY], options={"ledger_url": ""}, environment=environment
    ):
        assert (tmp_path / "data" / "tokentee" / "ledger.sqlite3").exists()


def test_the_script_runs_from_any_folder(tmp_path: Path) -> None:
    """`mitmdump -s …/addon/tee.py` finds the package, wherever it is called from."""
    command = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]
    command += ["-s", str(REPOSITORY / "addon" / "tee.py"), "-n", "--set", f"confdir={tmp_path}"]
    command += ["--set", f"ledger_url=sqlite:///{tmp_path}/l.db", "-r", os.devnull]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


type Words = list[str]


def _ledger(path: str) -> Words:
    return ["--set", f"ledger_url=sqlite:///{path}"]


def _not_a_database(folder: Path) -> Words:
    (folder / "junk.db").write_text("not a database, but long enough to be looked at" * 100)
    return _ledger(f"{folder}/junk.db")


def _another_program(folder: Path) -> Words:
    with sqlite3.connect(folder / "other.db") as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES ('9999')")
    made.close()
    return _ledger(f"{folder}/other.db")


def _newer(folder: Path) -> Words:
    db.ensure(f"sqlite:///{folder}/newer.db").dispose()
    with sqlite3.connect(folder / "newer.db") as made:
        made.execute("UPDATE alembic_version SET version_num = '9999'")
    made.close()
    return _ledger(f"{folder}/newer.db")


def _port_taken(_folder: Path) -> Words:
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
    "another program's database": (_another_program, "is not a ledger of tokentee"),
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
    started, temporary = tmp_path / "started", tmp_path / "tmp"
    temporary.mkdir()
    done = run(tmp_path, *make(tmp_path), "--", "touch", str(started), TMPDIR=str(temporary))
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
        f"    marker = pathlib.Path({str(marker)!r})\n"
        "    while not (marker.exists() and marker.read_text()):\n        await asyncio.sleep(0.05)\n"
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
            "@HOST:PORT at the end of --mode"),
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
