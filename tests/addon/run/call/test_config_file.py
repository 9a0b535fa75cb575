"""Which file is in force, and the files that it names."""

import pytest

from addon.run.call import config_file
from ledger.model.errors import LedgerError


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
        "line 2: prices: no file 'prices.toml'",
        "line 1: ledger_file: no file 'url'",
    ]
    (folder / "url").write_text("postgresql+psycopg://u:secret@h/d\n")
    (folder / "prices.toml").write_text("")
    settings = config_file.load(path)
    assert config_file.ledger_url(settings, path) == "postgresql+psycopg://u:secret@h/d"


def test_a_ledger_that_is_named_itself(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("ledger = 'sqlite:///l.db'\n")
    assert config_file.ledger_url(config_file.load(path), path) == "sqlite:///l.db"
