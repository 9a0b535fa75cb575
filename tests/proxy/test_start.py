"""Bad starts: one clear line, exit code 1, no traceback. And options that are said to be odd."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proxy.mitmdump import REPOSITORY, TEE, Mitmdump

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
    """`test_options` has the values of every option, `test_start_refused` other causes."""
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


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """As in an environment that has mitmproxy and not this project's dependencies."""
    missing = ("genai_prices", "msgspec", "orjson", "platformdirs", "sqlalchemy")
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n"
    )
    lines = start_badly(
        Mitmdump(
            tmp_path / "conf",
            upstreams=[NOBODY],
            environment={"PYTHONPATH": str(tmp_path)},
            has_own_interpreter=True,
        )
    )
    assert any("uv run mitmdump" in line for line in lines)
    assert any(f"cannot import {name} " in line for line in lines for name in missing)
    assert len(lines) == 1


def test_the_standalone_binary_is_recognised(tmp_path: Path) -> None:
    """It cannot import packages, and says what to do instead."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.frozen = True\nsys.modules['addon.proxy.recorder'] = None\n"
    )
    (line,) = start_badly(
        Mitmdump(
            tmp_path / "conf",
            upstreams=[NOBODY],
            environment={"PYTHONPATH": str(tmp_path)},
            has_own_interpreter=True,
        )
    )
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
        assert proxy.wait_for_log("usage cannot be asked for in larger requests")
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
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
