"""`tokentee run`: settings and workers."""

import os
from pathlib import Path

import pytest

from addon.commands import run as module
from addon.commands.run import run
from addon.run.call.arguments import parse
from ledger.model.errors import WrongCallError
from tests.named import for_each


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a test leave what a config file says in the environment of the next."""
    for name in ("CONFIG", "LEDGER", "WORKERS", "NAMES", "BUDGETS"):
        monkeypatch.setenv(f"TOKENTEE_{name}", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_where_the_number_of_workers_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def workers(*words: str) -> int | None:
        return module._with_config(parse(words), dict(os.environ)).workers

    assert workers() is None
    (tmp_path / "tokentee.toml").write_text("workers = 3\n")
    assert workers() is None  # found, and not trusted
    monkeypatch.setenv("TOKENTEE_CONFIG", "tokentee.toml")
    assert workers() == 3
    monkeypatch.setenv("TOKENTEE_WORKERS", "4")
    assert workers() == 4
    assert workers("--workers", "5") == 5


def test_files_of_names_and_budgets_follow_the_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("names.toml", "budgets.toml", "other.toml"):
        (tmp_path / name).write_text("")
    config = tmp_path / "tokentee.toml"
    given = dict(os.environ)
    config.write_text('names = "names.toml"\nbudgets = "budgets.toml"\n')
    module._with_config(parse([]), given)
    assert os.environ["TOKENTEE_NAMES"] == "names.toml"
    assert os.environ["TOKENTEE_BUDGETS"] == "budgets.toml"
    config.write_text('budgets = "other.toml"\n')
    module._with_config(parse([]), given)
    assert os.environ["TOKENTEE_BUDGETS"] == "other.toml", "read again, as at SIGHUP"
    mine = given | {"TOKENTEE_BUDGETS": "mine.toml"}
    monkeypatch.setenv("TOKENTEE_BUDGETS", "mine.toml")
    module._with_config(parse([]), mine)
    assert os.environ["TOKENTEE_BUDGETS"] == "mine.toml", "the operator's own stands above"


@for_each(
    "words, modes",
    [
        ("", ["--mode", "regular@127.0.0.1:81"]),
        ("--mode socks5", ["--mode", "socks5"]),
        ("--mode=socks5", ["--mode=socks5"]),
        ("--listen 82", []),
        ("-- true", []),
    ],
)
def test_modes_of_the_call_stand_above_those_of_the_file(
    words: str, modes: list[str], tmp_path: Path
):
    path = tmp_path / "c.toml"
    path.write_text('listen = "127.0.0.1:81"\n')
    call = module._with_config(parse(["--config", str(path), *words.split()]), {})
    assert list(call.options) == modes


def test_workers_are_run_for_a_proxy_alone(monkeypatch: pytest.MonkeyPatch):
    from addon.run.workers import supervisor

    monkeypatch.setattr(
        supervisor, "run_workers", lambda count, make_call: (count, make_call().workers)
    )
    assert run(["--workers", "2"]) == (2, 2)  # type: ignore[comparison-overlap]


@for_each(
    "words, why",
    [
        ("--unpriced maybe --max-usd 5 -- true", "'maybe' is neither refuse nor pass"),
        ("--unpriced pass -- true", "--unpriced is for a cap"),
        ("--max-usd 5 --unpriced pass", "is for a command"),
    ],
)
def test_what_has_no_bound_is_refused_or_passed_by_a_cap_of_a_command(words, why):
    with pytest.raises(WrongCallError, match=why):
        parse(words.split())
    (cap,) = parse(["--max-usd", "5", "--unpriced", "pass", "--", "true"]).caps
    assert cap.unpriced == "pass"
