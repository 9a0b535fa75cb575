"""Which file is in force, the files that it names, and the options that it gives."""

from pathlib import Path

import pytest

from addon.run.call import config_file
from addon.run.call.settings import read
from ledger.model.errors import LedgerError
from tests.addon.run.call.test_settings import WHOLE


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_CONFIG", raising=False)
    monkeypatch.setattr(config_file, "SYSTEM_FOLDER", tmp_path / "etc")


def test_the_order_of_places(tmp_path, monkeypatch):
    assert config_file.path_of(None) is None
    for path in reversed(config_file.places()):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
        assert config_file.path_of(None) == path
    monkeypatch.setenv("TOKENTEE_CONFIG", "other.toml")
    other = config_file.path_of(None, {"TOKENTEE_CONFIG": "other.toml"})
    assert other is not None
    assert other.name == "other.toml"
    mine = config_file.path_of("mine.toml")
    assert mine is not None
    assert mine.name == "mine.toml"


def test_the_first_problem_stops_and_the_rest_are_counted(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("comit = 1\nlisten = 'x'\n")
    with pytest.raises(LedgerError, match=r"c.toml: line 1: comit: .*and 1 more"):
        config_file.load(path)


def test_files_are_named_from_the_config_files_folder(tmp_path):
    folder = tmp_path / "sub"
    folder.mkdir()
    path = folder / "c.toml"
    path.write_text("ledger_file = 'url'\nprices = 'prices.toml'\n")
    assert [str(problem) for problem in config_file.check(path)[1]] == [
        "line 1: ledger_file: no file 'url'",
        "line 2: prices: no file 'prices.toml'",
    ]
    (folder / "url").write_text("postgresql+psycopg://u:secret@h/d\n")
    (folder / "prices.toml").write_text("")
    settings = config_file.load(path)
    assert config_file.ledger_url(settings, path) == "postgresql+psycopg://u:secret@h/d"


def test_a_ledger_that_is_named_itself(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("ledger = 'sqlite:///l.db'\n")
    assert config_file.ledger_url(config_file.load(path), path) == "sqlite:///l.db"


def options(text: str, **environment: str) -> dict[str, tuple[str, str]]:
    """Each option in force, with its source."""
    settings, problems = read(text)
    assert not problems
    found = config_file.options_of(settings, Path("/etc/tokentee/tokentee.toml"), environment)
    return {each.name: (each.value, each.source) for each in found}


def test_every_setting_is_an_option():
    text = WHOLE.replace("ledger_file = ", "ledger = ")
    assert options(text) == {
        "ledger_url": ("ledger_url", "file"),
        "ledger_commit": ("async", "file"),
        "tee_hosts": ("llm.example.com,127.0.0.1:11434=ollama", "file"),
        "tee_tags": ("team=search", "file"),
        "tee_log_format": ("json", "file"),
        "tee_metrics": ("127.0.0.1:9464", "file"),
        "tee_otlp": ("http://127.0.0.1:4318", "file"),
    }
    assert config_file.modes_of(read(text)[0]) == [
        "reverse:https://api.openai.com@127.0.0.1:8001",
        "reverse:http://127.0.0.1:11434/@[::1]:8002",
        "regular@127.0.0.1:8080",
    ]
    upstream = "[[upstream]]\nname='a'\nurl='https://h.example'\nlisten='h:1'\nprovider='p'\n"
    assert options(upstream) == {"tee_hosts": ("h.example=p", "file")}
    assert options("") == {}


def test_the_environment_stands_above_the_file():
    text = "ledger = 'a'\nprices = 'p'\nworkers = 3\nbudgets = 'b.toml'\nnames = '/n.toml'\n"
    assert options(text) == {
        "ledger_url": ("a", "file"),
        "tee_prices": ("/etc/tokentee/p", "file"),
        "names": ("/n.toml", "file"),
        "budgets": ("/etc/tokentee/b.toml", "file"),
        "workers": ("3", "file"),
    }
    variables = {variable: name for name, variable in config_file.VARIABLES.items()}
    for given in (text, ""):
        found = options(given, **dict.fromkeys(variables, "2"))
        assert found == {name: ("2", variable) for variable, name in variables.items()}


def test_options_of_the_command_line_stand_above_both():
    settings, _ = read("ledger = 'a'\ncommit = 'async'\nworkers = 3\nnames = 'n'\n")
    found = config_file.options_of(settings, Path("c.toml"), {})
    assert config_file.words_of(found, given={"ledger_url"}) == ["--set", "ledger_commit=async"]
    assert len(config_file.words_of(found, given=())) == 4
