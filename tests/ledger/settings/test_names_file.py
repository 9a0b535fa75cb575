"""Where the names lie."""

import pytest

from ledger.model.errors import LedgerError
from ledger.settings import names_file
from ledger.settings.names import NO_NAMES

TEXT = '[[name]]\nhost = "x"\nteam = "search"\n'


@pytest.fixture(autouse=True)
def own_config_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_NAMES", raising=False)
    return tmp_path / "config" / "tokentee"


def test_without_a_file_nothing_has_a_name():
    assert names_file.load(None) is NO_NAMES


def test_the_file_among_the_settings_the_variable_and_the_option(
    own_config_directory, tmp_path, monkeypatch
):
    own_config_directory.mkdir(parents=True)
    (own_config_directory / "names.toml").write_text(TEXT)
    assert names_file.load(None).entries[0].team == "search"
    (tmp_path / "other.toml").write_text(TEXT.replace("search", "other"))
    monkeypatch.setenv("TOKENTEE_NAMES", str(tmp_path / "other.toml"))
    assert names_file.load(None).entries[0].team == "other"
    assert names_file.load(str(own_config_directory / "names.toml")).entries[0].team == "search"


def test_a_wrong_file_is_one_line(tmp_path):
    path = tmp_path / "names.toml"
    path.write_text("[[name]]\nx = 1\n[[name]]\ny = 1\n")
    with pytest.raises(LedgerError, match=r"line 2: name 1: x: unknown.*\(and 1 more: tokentee"):
        names_file.load(str(path))
    with pytest.raises(LedgerError, match="cannot read the names file"):
        names_file.load(str(tmp_path / "none.toml"))
