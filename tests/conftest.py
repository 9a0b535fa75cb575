"""What all tests share, and lines that are printed when the run is over.

Tests run in several processes, so what is to be shown travels with each test's report, as the
property `line`: a section and a line of it.
"""

import asyncio
import functools
import gc
import importlib
import inspect
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

# Some containers set this variable. The workers and the hundreds of processes that tests start would
# then each compile every module they import: 5 s of CPU to start a mitmdump instead of 2.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Others set this one, with which no output waits for the end of a process and cannot fail there.
os.environ.pop("PYTHONUNBUFFERED", None)
# Hints name commands as they are typed: without `uv run`, in all tests alike.
os.environ.pop("UV_RUN_RECURSION_DEPTH", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Under nohup and in many CI runners. A child would inherit that, but not a function.
    signal.signal(signal.SIGHUP, lambda *_: None)

# To import this one expression of 30 000 lines takes 15 s while coverage traces lines, else 0.2 s.
if (tracing := sys.gettrace()) is not None:
    sys.settrace(None)
    importlib.import_module("genai_prices.data")
    sys.settrace(tracing)

# SQLite ledgers wait for the disk at each commit: 4 ms on a disk, 4 µs in memory (measured). No test
# needs its files after a power cut.
MEMORY = Path("/dev/shm")  # pytest makes a folder of its own in it
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# How long an example takes is up to the machine, and 30 keep a whole run short. For many more:
# `pytest --hypothesis-profile=long tests/addon/framing`.
settings.register_profile("short", max_examples=30, deadline=None)
settings.register_profile("long", max_examples=2_000, deadline=None)
settings.load_profile("short")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


type Say = Callable[[str, str], None]


@pytest.fixture(scope="session")
def secret_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths of secrets, of which none exists. A folder for each test would cost a tenth of them."""
    folder = tmp_path_factory.mktemp("secrets")
    return (folder / f"secret-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def own_secret_file(secret_files: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test makes or reads the secret of the user who runs it."""
    monkeypatch.setenv("TOKENTEE_SECRET_FILE", str(next(secret_files)))


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger, migrated once: a test takes a copy."""
    from ledger.store import db

    path = tmp_path_factory.mktemp("migrated") / "ledger.sqlite3"
    db.ensure(f"sqlite:///{path}").dispose()
    return path


@pytest.fixture
def say_at_end(record_property: Callable[[str, object], None]) -> Say:
    """`say_at_end(section, line)`: a line for the end of the run."""
    return lambda section, line: record_property("line", (section, line))


def pytest_collection_finish() -> None:
    """Compile a statement once, not once for each test: a seventh of the tests' CPU time. And build
    the commands of an application once, not at each call: a tenth of it."""
    if "sqlalchemy" in sys.modules:
        from tests import shared_dialects

        shared_dialects.register()
    if "typer.testing" in sys.modules:
        main, testing = (sys.modules[f"typer.{name}"] for name in ("main", "testing"))
        main.get_command = testing._get_command = functools.cache(main.get_command)  # type: ignore[attr-defined]


END_TO_END = {
    f"proxy/test_{name}.py"
    for name in (
        *("matrix", "before_end", "endings", "asking", "streaming", "request_bodies"),
        *("confirming", "durability", "websocket", "start", "run", "replay", "telemetry"),
    )
}
"""What runs by default beside unit tests: a real mitmdump, from the client's bytes to the ledger."""
ALSO_BY_DEFAULT = {"ledger/parts/test_one_figure.py", "test_patterns.py", "addon/test_corpus.py"}
BY_NAME_MARKS = {"nightly", "bench", "clients", "browser"}
NOT_UNIT_FOLDERS = {"proxy", "bench", "nightly", "clients"}
UNMEASURED_MARKS = {"large", "process", "proxy"}
NOT_UNIT_MARKS = {"proxy", "postgres", "process", "bench", "nightly", "clients", "browser", "large"}
NOT_UNIT_FIXTURES = {"postgres_server", "ssh"}


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers more than there are cores: many tests wait for processes and for databases.

    Unit tests wait for nothing, and each worker takes seconds to collect them.
    """
    cores = len(os.sched_getaffinity(0))
    return cores if _only_unit(config) else cores + 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where all is left out, nothing is imported: SDKs and browsers take seconds."""
    if not _only_unit(config):
        return None
    folder = collection_path.relative_to(Path(__file__).parent).parts[:1]
    return True if NOT_UNIT_FOLDERS.intersection(folder) else None


def _only_unit(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "unit")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the process: the garbage collector need not see it.

    It took a tenth of the time to collect the tests, and 7 % of the time to run unit tests; to look
    through all that is left as often as Python does by default, another 4 %.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(2_000, 10, 100)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `unit` whatever starts no process, no PostgreSQL and no proxy, and is not `large`; and
    `ci` what is neither that nor named above nor run by name alone.

    Tests that draw their inputs do not count as coverage: a branch that only a random example
    reaches would be tested in some runs. Measuring would also triple their time, that of `large` ones,
    which repeat what a small case covers, and that of tests whose work is in other processes.
    """
    here = Path(__file__).parent
    is_unit_folder: dict[Path, bool] = {}
    for item in items:
        if item.path not in is_unit_folder:
            folder = item.path.relative_to(here).parts[0]
            is_unit_folder[item.path] = folder not in NOT_UNIT_FOLDERS
        marks = {mark.name for mark in item.iter_markers()}
        if (
            is_unit_folder[item.path]
            and not marks & NOT_UNIT_MARKS
            and not NOT_UNIT_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        ):
            item.add_marker(pytest.mark.unit)
        elif not marks & BY_NAME_MARKS and not is_default(item):
            item.add_marker(pytest.mark.ci)
        if marks & UNMEASURED_MARKS or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)
    # Files that start processes take longest: they come first, so that the workers end together.
    slow = {item.path for item in items if not item.get_closest_marker("unit")}
    items.sort(key=lambda item: item.path not in slow)


def is_default(item: pytest.Item) -> bool:
    """Whether a test that is no unit test runs by default: not where it wants PostgreSQL."""
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return path in END_TO_END | ALSO_BY_DEFAULT and not (
        item.get_closest_marker("postgres")
        or NOT_UNIT_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sections: dict[str, list[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                if name == "line":
                    section, line = value
                    sections.setdefault(section, []).append(line)
    without_corpus = sum(
        "recorded corpus is not beside" in str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    )
    if without_corpus:
        line = f"{without_corpus} tests need the recorded corpus, which is not beside the project"
        sections["NOT RUN"] = [f"{line}: tests/data alone was read"]
    for section, lines in sections.items():
        terminalreporter.section(section)
        for line in lines:
            terminalreporter.write_line(line)
