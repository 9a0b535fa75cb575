"""Which file is in force, the files that it names, and the options that it gives.

A config file that was found may set what is harmless; every other key needs trust.
"""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from addon.commands.run import _with_config
from addon.run.call import config_file
from addon.run.call.arguments import parse, set_options
from addon.run.call.settings import ConfigFile, read
from ledger.budgets import budgets_file as budgets_files
from ledger.model.errors import LedgerError
from ledger.settings import small_files
from tests.addon.run.call.test_settings import WHOLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files that some settings name."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("TOKENTEE_CONFIG", raising=False)
    monkeypatch.setattr(config_file, "SYSTEM_FOLDER", tmp_path / "etc")
    monkeypatch.setattr(config_file, "config_directory", lambda: tmp_path / "config")
    for name in ("prices.toml", "names.toml"):
        (here / name).write_text("")
    (here / "url.txt").write_text("sqlite:////elsewhere")
    (here / "budgets.toml").write_text(BUDGET)
    return here


def test_the_order_of_places(folder, monkeypatch):
    assert config_file.path_of(None) is None
    for path in reversed(config_file.places()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
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
    long = "x" * 300  # the system refuses to look for it
    path.write_text(f"ledger_file = '{long}'\n")
    assert [str(problem) for problem in config_file.check(path)[1]] == [
        f"line 1: ledger_file: no file '{long}'"
    ]
    path.write_text('ledger_file = "a\\u0000b"\n')
    with pytest.raises(LedgerError, match=r"line 1: ledger_file: no file 'a\\x00b'"):
        config_file.load(path)
    path.write_text("ledger_file = 'url'\nprices = 'prices.toml'\n")
    assert [str(problem) for problem in config_file.check(path)[1]] == [
        "line 1: ledger_file: no file 'url'",
        "line 2: prices: no file 'prices.toml'",
    ]
    (folder / "url").write_text("postgresql+psycopg://u:secret@h/d\n")
    (folder / "prices.toml").write_text("")
    assert config_file.ledger_url(config_file.load(path)) == "postgresql+psycopg://u:secret@h/d"


def test_a_ledger_that_is_named_itself(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("ledger = 'sqlite:///l.db'\n")
    assert config_file.ledger_url(config_file.load(path)) == "sqlite:///l.db"


def options(text: str, **environment: str) -> dict[str, tuple[str, str]]:
    """Each option in force, with its source."""
    settings, problems = read(text)
    assert not problems
    path = Path("/etc/tokentee/tokentee.toml")
    loaded = config_file.Loaded(path=path, text=text, settings=settings, files={})
    found = config_file.options_of(loaded, environment)
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
    path = Path("c.toml")
    path.write_text("ledger = 'a'\ncommit = 'async'\nworkers = 3\nnames = 'names.toml'\n")
    found = config_file.options_of(config_file.load(path), {})
    assert config_file.words_of(found, given={"ledger_url"}) == ["--set", "ledger_commit=async"]
    assert len(config_file.words_of(found, given=())) == 4


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


def found(text: str, **environment: str) -> ConfigFile:
    Path(config_file.NAME).write_text(text)
    return config_file.in_force(Path(config_file.NAME), None, environment).settings


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
    named = config_file.in_force(path, str(path), {}).settings
    assert getattr(named, key) != getattr(ConfigFile(), key)
    assert found(text, TOKENTEE_CONFIG=str(path)) == named


@pytest.mark.parametrize("key", ["ledger", "hosts", "budgets", "otlp"])
def test_trust_ends_with_any_change(key: str, folder: Path):
    path = Path(config_file.NAME)
    (folder / "budgets.toml").write_text(BUDGET + ALERT)
    assert getattr(found(VALUES[key]), key) == getattr(ConfigFile(), key)
    config_file.remember(path, config_file.load(path).digest)
    assert getattr(found(VALUES[key]), key) != getattr(ConfigFile(), key)
    changed: Any = found(VALUES[key] + "\nlog = 'exchanges'")
    assert getattr(changed, key) == getattr(ConfigFile(), key)
    if key == "budgets":
        (folder / "budgets.toml").write_text(BUDGET + ALERT.replace("touch", "rm"))
        assert found(VALUES[key]).budgets is None
    config_file.remember(path, None)
    assert getattr(found(VALUES[key]), key) == getattr(ConfigFile(), key)


EXCHANGED = {
    "tokentee.toml": ("ledger = 'sqlite:////elsewhere'\n", "log = 'exchanges'\n"),
    "url.txt": ("sqlite:////elsewhere", "sqlite:////mine"),
    "budgets.toml": (BUDGET + ALERT, BUDGET),
}
"""File -> what an attacker writes into it, and what was trusted."""


@pytest.mark.parametrize("name", EXCHANGED)
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize(("at", "until"), [(1, 1), (2, 2), (3, 3), (1, 9), (2, 9), (3, 9)])
def test_a_file_that_is_exchanged_while_it_is_read_does_no_harm(
    name: str,
    is_trusted: bool,
    at: int,
    until: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """The attacker's file is there for these readings, the trusted one before and after them."""
    bad, good = EXCHANGED[name]
    path, file = Path(config_file.NAME), folder / name
    path.write_text({"url.txt": VALUES["ledger_file"]}.get(name, VALUES["budgets"]))
    file.write_text(good)
    if is_trusted:
        config_file.remember(path, config_file.load(path).digest)
    monkeypatch.setenv(budgets_files.DIGEST_VARIABLE, "")
    monkeypatch.setenv("TOKENTEE_BUDGETS", "")
    monkeypatch.setenv("TOKENTEE_NAMES", "")
    first_bytes = small_files.first_bytes
    readings = 0

    def read_exchanged(read: Path, bytes_max: int) -> bytes:
        nonlocal readings
        if read.name == name:
            readings += 1
            file.write_text(bad if at <= readings <= until else good)
        return first_bytes(read, bytes_max)

    monkeypatch.setattr(small_files, "first_bytes", read_exchanged)
    call = _with_config(parse(()), {})
    assert "elsewhere" not in set_options(call.options).get("ledger_url", "")
    with contextlib.suppress(LedgerError):  # it has changed since it was checked
        assert not budgets_files.load(None).destinations


def test_a_file_that_a_key_names_lies_beside_it(tmp_path: Path, folder: Path):
    (tmp_path / "outside.toml").write_text("")
    (folder / "link.toml").symlink_to(tmp_path / "outside.toml")
    for name in ("../outside.toml", "link.toml", str(tmp_path / "outside.toml")):
        Path(config_file.NAME).write_text(f"names = '{name}'")
        assert config_file.in_force(Path(config_file.NAME), None, {}).settings.names is None


def test_budgets_that_change_while_a_proxy_runs_count_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    path = folder / "budgets.toml"
    Path(config_file.NAME).write_text("budgets = 'budgets.toml'")
    digest = config_file.load(Path(config_file.NAME)).file_digest("budgets")
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
