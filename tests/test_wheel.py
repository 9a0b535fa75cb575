"""The wheel: everything under one package, and it works beside foreign `addon` and `ledger`."""

import importlib.util
import itertools
import json
import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.named import for_each
from tests.proxy.pair import OPENAI, speak
from tests.proxy.upstream import Answer, Request, Upstream

ROOT = Path(__file__).parents[1]
BUILDING = ROOT / ".build" / "wheel.py"
BODY = b'data: {"id":"c-1","object":"chat.completion.chunk","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
URL = "https://api.openai.com/v1/chat/completions"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FOREIGN = 'raise ImportError("a foreign package of the same name")\n'


def building():
    spec = importlib.util.spec_from_file_location("tokentee_wheel", BUILDING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@for_each(
    "before, after",
    [
        ("from ledger.model import money\n", "from tokentee.ledger.model import money\n"),
        ("from addon import cli\n", "from tokentee.addon import cli\n"),
        ("import addon\n", "import tokentee.addon as addon\n"),
        ("import ledger.model as m, os\n", "import tokentee.ledger.model as m, os\n"),
        ("é = 1; from ledger import x\n", "é = 1; from tokentee.ledger import x\n"),
        ("def f():\n    from addon.run import (\n        a,\n        b,\n    )\n",
         "def f():\n    from tokentee.addon.run import (\n        a,\n        b,\n    )\n"),
        ('"""from ledger import x"""\n', '"""from ledger import x"""\n'),
        ("text = '''\nimport ledger\n'''\n", "text = '''\nimport ledger\n'''\n"),
        ("import ledgers, addons.x\n", "import ledgers, addons.x\n"),
        ("from . import ledger\n", "from . import ledger\n"),
        ("ledger = addon = 1\n", "ledger = addon = 1\n"),
        ("from addon import a; from ledger import b\n",
         "from tokentee.addon import a; from tokentee.ledger import b\n"),
    ],
)  # fmt: skip
def test_imports_are_rewritten_and_nothing_else(before: str, after: str):
    assert building().rewritten(before) == after


def test_an_import_that_binds_the_name_is_refused():
    with pytest.raises(SyntaxError, match=r"from \.\.\. import"):
        building().rewritten("import ledger.model\n")


@pytest.mark.large
def test_every_module_is_still_python_and_imports_ours_from_the_package(tmp_path: Path):
    """To be rewritten once more, a module is parsed."""
    module = building()
    module.write_package(ROOT, tmp_path)
    found = {path.relative_to(tmp_path / "tokentee") for path in tmp_path.rglob("*.py")}
    assert len(found) > 200
    for path in tmp_path.rglob("*.py"):
        text = path.read_text()
        assert module.rewritten(text, str(path)) == text, "nothing is left to rewrite"
    assert (tmp_path / "tokentee" / "addon" / "run" / "preload.cjs").is_file()
    assert (tmp_path / "tokentee" / "migrations" / "script.py.mako").is_file()


def uv_command(folder: Path) -> list[str]:
    """uv, as a program or as a module of the Python that this environment was made from."""
    for command in ([os.environ.get("UV", "uv")], [sys._base_executable, "-m", "uv"]):  # type: ignore[attr-defined]
        try:
            done = subprocess.run(
                [*command, "--version"], capture_output=True, check=False, cwd=folder, timeout=120
            )
        except OSError:
            continue
        if done.returncode == 0:
            return command
    pytest.skip("uv is not installed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and a folder whose `addon` and `ledger` are not ours."""
    folder = tmp_path_factory.mktemp("wheel")
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    def uv(*words: str) -> None:
        command = [*uv_command(folder), *words]
        subprocess.run(command, check=True, cwd=folder, timeout=300, env=environment)

    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    uv("venv", "--quiet", "--python", sys.executable, str(folder / "env"))
    uv("pip", "install", "--quiet", "--python", str(folder / "env" / "bin" / "python"), str(wheel))
    for name in ("addon", "ledger"):
        (folder / "foreign" / name).mkdir(parents=True)
        (folder / "foreign" / name / "__init__.py").write_text(FOREIGN)
    return folder


@pytest.fixture(scope="module")
def with_extras(installed: Path) -> Path:
    (wheel,) = installed.glob("*.whl")
    subprocess.run(
        [*uv_command(installed), "pip", "install", "--quiet",
         "--python", str(installed / "env" / "bin" / "python"),
         f"tokentee[{','.join(EXTRAS)}] @ {wheel.as_uri()}"],
        check=True, cwd=installed, timeout=500,
        env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
    )  # fmt: skip
    (installed / "extras").mkdir()
    (installed / "extras" / "answer.sse").write_bytes(BODY)
    return installed


def run(installed: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """A program of the environment, with the foreign packages first on the path."""
    program, *arguments = words
    return subprocess.run(
        [str(installed / "env" / "bin" / program), *arguments],
        input=typed, capture_output=True, text=True, check=False, timeout=120,
        cwd=installed / "foreign",
        env=os.environ | {
            "PYTHONPATH": str(installed / "foreign"),
            "TOKENTEE_LEDGER": f"sqlite:///{installed}/ledger.db",
            "NO_COLOR": "1",
        },
    )  # fmt: skip


@pytest.mark.proxy
@pytest.mark.nightly
class TestInstalled:
    """Slow: one environment for all of them."""

    def test_the_entry_points(self, installed: Path):
        for words in (["tokentee", "--version"], ["python", "-m", "tokentee", "--version"]):
            done = run(installed, *words)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("tokentee ")

    def test_nothing_else_is_installed_at_top_level(self, installed: Path):
        site = next((installed / "env" / "lib").glob("python*/site-packages"))
        assert not (site / "addon").exists()
        assert not (site / "ledger").exists()
        assert not (site / "tests").exists()
        assert not (site / "pytest").exists(), "the dev group is not for users"
        assert not (site / "pyarrow").exists()

    def test_replay_report_and_run(self, installed: Path):
        (installed / "answer.sse").write_bytes(BODY)
        done = run(installed, "tokentee", "replay", "--url", URL, str(installed / "answer.sse"))
        assert done.returncode == 0, done.stderr
        done = run(installed, "tokentee", "report", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert "gpt-4o" in done.stdout
        assert json.loads(done.stdout)
        done = run(installed, "tokentee", "run", "--", "echo", "hello")
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr

    def test_csv_needs_no_extra(self, installed: Path):
        (installed / "answer.sse").write_bytes(BODY)
        run(installed, "tokentee", "replay", "--url", URL, str(installed / "answer.sse"))
        for what in ("requests", "charges", "focus"):
            target = installed / what
            done = run(
                installed, "tokentee", "export", str(target), "--what", what, "--format", "csv"
            )
            assert done.returncode == 0, done.stderr
            (file,) = target.rglob("*.csv")
            assert len(file.read_text().splitlines()) > 1

    def test_the_script(self, installed: Path):
        path = run(installed, "tokentee", "path").stdout.strip()
        assert path.endswith("tokentee/addon/tee.py")
        done = run(
            installed, "mitmdump", "-s", path, "-n", "-r", os.devnull,
            "--set", f"confdir={installed}",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "tokentee" in done.stdout

    def test_the_demo(self, installed: Path):
        done = run(installed, "tokentee", "demo")
        assert done.returncode == 0, done.stdout + done.stderr

    def test_a_missing_extra_is_one_line(self, installed: Path):
        target = str(installed / "out")
        done = run(installed, "tokentee", "export", target, "--format", "parquet")
        assert "Traceback" not in done.stderr
        assert "tokentee[parquet]" in done.stderr
        assert "--format csv" in done.stderr
        done = run(installed, "tokentee", "report", "--ledger", "postgresql://me@127.0.0.1:9/x")
        assert "Traceback" not in done.stderr
        assert "tokentee[postgresql]" in done.stderr
        answer = installed / "one.sse"
        answer.write_bytes(BODY)
        done = run(installed, "tokentee", "replay", "--dask", "local", "--url", URL, str(answer))
        assert "tokentee[dask]" in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr
        done = run(
            installed, "tokentee", "run", "--set", "tee_otlp=http://127.0.0.1:9", "--", "true"
        )
        assert done.returncode == 2  # the command was not started
        assert "tokentee[otel]" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.proxy
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_first_hour(tmp_path: Path):
    """The commands of the README, as written, in a home that has nothing; then a command, a proxy,
    the report, the page and a second machine."""
    blocks = (ROOT / "README.md").read_text().partition("## Try it")[2].split("```")[1:5:2]
    demo, tests, install = (
        line.removeprefix("$ ") for line in "".join(blocks).splitlines() if line.startswith("$ ")
    )
    assert demo.startswith("pip install uv && uv run ")
    assert tests == "uv run pytest"
    rest = (ROOT / "tests" / "first_hour.sh").read_text()
    script = "\n".join(["set -e", demo.removeprefix("pip install uv && "), install, rest])
    uv = tmp_path / "bin" / "uv"  # as if it were on the path, also where it is a module alone
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nexec {shlex.join(uv_command(tmp_path))} "$@"\n')
    uv.chmod(0o755)
    left_out = ("VIRTUAL_ENV", "XDG_", "TOKENTEE_", "UV_RUN", "PYTHON")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True)
    numbers = itertools.count()

    def answer(request: Request) -> Answer:  # each with an id of its own, as a provider gives it
        told = speak(OPENAI)(request)
        new = b"chatcmpl-%d" % next(numbers)
        return replace(told, pieces=tuple(one.replace(b"chatcmpl-w1", new) for one in told.pieces))

    with Upstream(answer) as upstream:
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=500,
            env=inherited | {
                "HOME": str(tmp_path),
                "PATH": f"{tmp_path}/.local/bin:{uv.parent}:/usr/bin:/bin",
                "UV_CACHE_DIR": cache.stdout.strip(),
                "UV_PROJECT_ENVIRONMENT": str(tmp_path / "environment"),
                "UV_PYTHON": sys.executable,
                "UPSTREAM": upstream.url,
                "PYTHON": sys.executable,
            },
        )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tokentee serve --open" in done.stdout
    assert "tokentee: ledger " in done.stdout
    hour = done.stdout.partition("# A command")[2]
    assert hour.count("This run by model") == 2
    assert hour.count("Requests by model") == 2
    for part in hour.split("Requests by model")[1:]:
        (total,) = [line for line in part.splitlines() if line.startswith("Total")]
        assert total.split()[1] == "2"
    assert "the page: Tokentee" in hour


@pytest.mark.clients
@pytest.mark.timeout(600)
class TestExtras:
    """Every extra, installed from the wheel: one real command of each."""

    def test_every_extra_has_a_test(self):
        assert set(EXTRAS) == {"parquet", "postgresql", "dask", "s3", "otel"}

    def test_dask_and_parquet(self, with_extras: Path):
        answer = str(with_extras / "extras" / "answer.sse")
        done = run(
            with_extras, "tokentee", "replay", "--dask", "local", "-j", "1", "--url", URL, answer
        )
        assert done.returncode == 0, done.stderr
        out = with_extras / "extras" / "out"
        done = run(with_extras, "tokentee", "export", str(out))
        assert done.returncode == 0, done.stderr
        assert list(out.rglob("*.parquet"))

    def test_postgresql_names_the_server_that_is_not_there(self, with_extras: Path):
        """A real server is in the other tests; here the driver is what counts."""
        done = run(with_extras, "tokentee", "report", "--ledger", "postgresql://me@127.0.0.1:9/x")
        assert done.returncode == 1
        assert "check that the server runs" in done.stderr

    def test_s3(self, with_extras: Path):
        """An endpoint where nothing answers: the request was made."""
        os_free = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x",
                   "AWS_SECRET_ACCESS_KEY": "x", "AWS_MAX_ATTEMPTS": "1"}  # fmt: skip
        command = [f"{name}={value}" for name, value in os_free.items()]
        command += [str(with_extras / "env" / "bin" / "tokentee")]
        done = subprocess.run(
            ["/usr/bin/env", *command, "replay", "--dask", "local", "-j", "1", "s3://bucket/x/*"],
            capture_output=True, text=True, check=False, timeout=240, cwd=with_extras,
        )  # fmt: skip
        assert done.returncode == 1
        assert "127.0.0.1:9" in done.stderr
        assert "Traceback" not in done.stderr

    def test_otel(self, with_extras: Path):
        done = run(
            with_extras,
            "tokentee",
            "run",
            "--set",
            "tee_otlp=http://127.0.0.1:9",
            "--",
            "echo",
            "hi",
        )
        assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr
