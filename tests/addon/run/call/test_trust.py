"""A config file that was found may set what is harmless; every other key needs config_file."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from addon.run.call import config_file
from addon.run.call.settings import ConfigFile
from ledger.budgets import budgets_file as budgets_files
from ledger.model.errors import LedgerError

VALUES: dict[str, str] = {
    "ledger": 'ledger = "sqlite:////elsewhere"',
    "ledger_file": 'ledger_file = "url.txt"',
    "listen": 'listen = "0.0.0.0:1"',
    "commit": 'commit = "async"',
    "inject": 'inject = "always"',
    "hosts": 'hosts = ["bank.example"]',
    "capture": 'capture = "out"',
    "prices": 'prices = "prices.toml"',
    "names": 'names = "names.toml"',
    "budgets": 'budgets = "budgets.toml"',
    "workers": "workers = 4",
    "client_tags": 'client_tags = "ignore"',
    "log": 'log = "exchanges"',
    "log_format": 'log_format = "json"',
    "tags": 'tags = {team = "search"}',
    "metrics": 'metrics = {listen = "0.0.0.0:2"}',
    "otlp": 'otlp = {endpoint = "http://collector.example"}',
    "upstream": '[[upstream]]\nname = "a"\nurl = "https://a.example"\nlisten = "127.0.0.1:3"',
}
BUDGET = '[[budget]]\nname = "b"\nusd = 1\nperiod = "day"\n'
ALERT = '[[alert]]\ncommand = ["touch", "pwned"]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config_file, "config_directory", lambda: tmp_path / "config")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in ("url.txt", "prices.toml", "names.toml"):
        (here / name).write_text("")
    (here / "url.txt").write_text("sqlite:////elsewhere")
    (here / "budgets.toml").write_text(BUDGET)
    return here


def found(text: str, **environment: str) -> ConfigFile:
    Path(config_file.NAME).write_text(text)
    return config_file.in_force(Path(config_file.NAME), None, environment)


@pytest.mark.parametrize("key", [each.name for each in fields(ConfigFile)])
def test_only_a_harmless_key_holds_unasked(key: str, capsys: pytest.CaptureFixture[str]):
    """A key that is added later has no value here, and this test says so."""
    text = VALUES[key]
    holds = getattr(found(text), key) != getattr(ConfigFile(), key)
    assert holds is (key in config_file.HARMLESS)
    said = capsys.readouterr().err
    assert ("is not trusted" in said) is not holds
    assert holds or key in said
    path = Path(config_file.NAME)
    named = config_file.in_force(path, str(path), {})
    assert getattr(named, key) != getattr(ConfigFile(), key)
    assert found(text, TOKENTEE_CONFIG=str(path)) == named


@pytest.mark.parametrize("key", ["ledger", "hosts", "budgets", "otlp"])
def test_trust_ends_with_any_change(key: str, folder: Path):
    path = Path(config_file.NAME)
    (folder / "budgets.toml").write_text(BUDGET + ALERT)
    assert getattr(found(VALUES[key]), key) == getattr(ConfigFile(), key)
    config_file.remember(path, config_file.digest_of(path, config_file.load(path)))
    assert getattr(found(VALUES[key]), key) != getattr(ConfigFile(), key)
    changed: Any = found(VALUES[key] + "\nlog = 'exchanges'")
    assert getattr(changed, key) == getattr(ConfigFile(), key)
    if key == "budgets":
        (folder / "budgets.toml").write_text(BUDGET + ALERT.replace("touch", "rm"))
        assert found(VALUES[key]).budgets is None
    config_file.remember(path, None)
    assert getattr(found(VALUES[key]), key) == getattr(ConfigFile(), key)


def test_a_file_that_a_key_names_lies_beside_it(tmp_path: Path, folder: Path):
    (tmp_path / "outside.toml").write_text("")
    (folder / "link.toml").symlink_to(tmp_path / "outside.toml")
    for name in ("../outside.toml", "link.toml", str(tmp_path / "outside.toml")):
        Path(config_file.NAME).write_text(f"names = '{name}'")
        assert config_file.in_force(Path(config_file.NAME), None, {}).names is None


def test_budgets_that_change_while_a_proxy_runs_count_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    path = folder / "budgets.toml"
    digest = config_file.file_digest(path)
    assert digest is not None
    monkeypatch.setenv(budgets_files.DIGEST_VARIABLE, digest)
    assert budgets_files.load(str(path)).budgets
    path.write_text(BUDGET + ALERT)
    with pytest.raises(LedgerError, match="has changed"):
        budgets_files.load(str(path))


def test_a_damaged_list_is_one_error(tmp_path: Path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / config_file.STORE).write_text("[1")
    with pytest.raises(LedgerError, match="remove it"):
        config_file.remembered()


def test_the_list_is_its_owners_alone(tmp_path: Path):
    config_file.remember(Path("x.toml"), "ab")
    assert (tmp_path / "config" / config_file.STORE).stat().st_mode & 0o777 == 0o600
    assert list(config_file.remembered().values()) == ["ab"]
