"""Which file is in force, the files that it names, and what it adds to a call."""

import os
import tomllib
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from addon.run.call import config_file
from addon.run.call.arguments import parse, set_options
from addon.run.call.config_file import completed
from ledger.model.errors import LedgerError
from tests.addon.run.call.test_settings import WHOLE
from tests.named import for_each
from tests.proxy.mitmdump import REPOSITORY


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; no settings lie anywhere, nor does a test leave any behind."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in config_file.VARIABLES.values():
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(config_file, "SYSTEM_FOLDER", tmp_path / "etc")
    monkeypatch.setattr(config_file, "config_directory", lambda: tmp_path / "config")
    return here


def options(text: str, words: str = "", **given: str) -> dict[str, str]:
    """What a call with this config file sets."""
    path = Path("c.toml")
    path.write_text(text)
    return set_options(completed(parse(["--config", str(path), *words.split()]), given).options)


def test_the_order_of_places(tmp_path: Path):
    assert config_file.path_of(None, {}) is None
    for folder in (tmp_path / "etc", tmp_path / "config"):
        folder.mkdir()
        path = folder / "tokentee.toml"
        path.write_text("")
        assert config_file.path_of(None, {}) == path
    assert config_file.path_of(None, {"TOKENTEE_CONFIG": "other.toml"}) == Path("other.toml")
    assert config_file.path_of("mine.toml", {"TOKENTEE_CONFIG": "o.toml"}) == Path("mine.toml")


def test_what_lies_in_the_current_folder_is_not_read_unless_it_is_named(
    capsys: pytest.CaptureFixture[str],
):
    for name in ("tokentee.toml", "prices.toml", "names.toml", "budgets.toml"):
        Path(name).write_text("this = [is, read")
    call = completed(parse(()), {})
    assert call == parse(())
    (line,) = capsys.readouterr().err.splitlines()
    assert "--config tokentee.toml names it" in line
    for call, given in (
        (parse(["--config", "tokentee.toml"]), {}),
        (parse(()), {"TOKENTEE_CONFIG": "tokentee.toml"}),
    ):
        with pytest.raises(LedgerError, match=r"tokentee\.toml: line 1: not TOML"):
            completed(call, given)


def test_every_problem_is_named_with_its_line():
    Path("c.toml").write_text("comit = 1\nlisten = 'x'\n")
    with pytest.raises(LedgerError, match=r"^c.toml: line 1: comit: [^\n]*; line 2: listen: "):
        config_file.load(Path("c.toml"))
    Path("c.toml").write_text("".join(f"x{number} = 1\n" for number in range(30)))
    with pytest.raises(LedgerError, match=r"line 10: [^\n]*; and 20 more$"):
        config_file.load(Path("c.toml"))


def test_files_are_named_from_the_config_files_folder(tmp_path: Path):
    folder = tmp_path / "sub"
    folder.mkdir()
    path = folder / "c.toml"
    long = "x" * 300  # the system refuses to look for it
    for text, said in [
        (f"ledger_file = '{long}'\n", f"line 1: ledger_file: no file '{long}'"),
        ('ledger_file = "a\\u0000b"\n', r"line 1: ledger_file: no file 'a\\x00b'"),
        ("ledger_file = 'url'\nprices = 'p'\n", "no file 'url'; line 2: prices: no file 'p'"),
    ]:
        path.write_text(text)
        with pytest.raises(LedgerError, match=said):
            config_file.load(path)
    (folder / "url").write_text("postgresql+psycopg://u:secret@h/d\n")
    (folder / "p").write_text("")
    assert config_file.load(path)[1] == {
        "ledger_url": "postgresql+psycopg://u:secret@h/d",
        "tee_prices": str(folder / "p"),
    }


def test_every_setting_is_an_option():
    assert options(WHOLE.replace("ledger_file = ", "ledger = ")) == {
        "ledger_url": "ledger_url",
        "ledger_commit": "async",
        "tee_hosts": "llm.example.com,api.openai.com,127.0.0.1:11434=ollama",
        "tee_tags": "team=search",
        "tee_log_format": "json",
        "tee_metrics": "127.0.0.1:9464",
        "tee_otlp": "http://127.0.0.1:4318",
    }
    call = completed(parse(["--config", "c.toml"]), {})
    modes = [value for name, value in pairwise(call.options) if name == "--mode"]
    assert modes == [
        "reverse:https://api.openai.com@127.0.0.1:8001",
        "reverse:http://127.0.0.1:11434/@[::1]:8002",
        "regular@127.0.0.1:8080",
    ]
    upstream = "[[upstream]]\nname='a'\nurl='https://h.example'\nlisten='h:1'\nprovider='p'\n"
    assert options(upstream) == {"tee_hosts": "h.example=p"}
    unnamed = "[[upstream]]\nname='a'\nurl='https://h.example:8443'\nlisten='h:1'\n"
    assert options(unnamed) == {"tee_hosts": "h.example:8443"}
    assert options(unnamed.replace("h.example", "[::1]")) == {"tee_hosts": "[::1]:8443"}
    assert options("") == {}


def test_the_environment_stands_above_the_file_and_an_option_above_both():
    Path("p").write_text("")
    text = "ledger = 'a'\nprices = 'p'\ncommit = 'async'\n"
    assert options(text) == {"ledger_url": "a", "tee_prices": "p", "ledger_commit": "async"}
    assert options(text, TOKENTEE_LEDGER="b", TOKENTEE_PRICES="q") == {"ledger_commit": "async"}
    found = options(text, "--ledger c --set ledger_commit=before_end", TOKENTEE_LEDGER="b")
    assert found == {"ledger_url": "c", "tee_prices": "p", "ledger_commit": "before_end"}


def test_where_the_number_of_workers_comes_from():
    def workers(*words: str, **given: str) -> int | None:
        return completed(parse(words), given).workers

    assert workers() is None
    Path("tokentee.toml").write_text("workers = 3\n")
    assert workers() is None  # found, not named
    assert workers(TOKENTEE_CONFIG="tokentee.toml") == 3
    assert workers(TOKENTEE_CONFIG="tokentee.toml", TOKENTEE_WORKERS="4") == 4
    assert workers("--workers", "5", TOKENTEE_WORKERS="4") == 5


def test_files_of_names_and_budgets_follow_the_config_file():
    for name in ("names.toml", "budgets.toml", "other.toml"):
        Path(name).write_text("")
    assert options('names = "names.toml"\nbudgets = "budgets.toml"\n') == {}
    assert os.environ["TOKENTEE_NAMES"] == "names.toml"
    assert os.environ["TOKENTEE_BUDGETS"] == "budgets.toml"
    options('budgets = "other.toml"\n')
    assert os.environ["TOKENTEE_BUDGETS"] == "other.toml", "read again, as at SIGHUP"
    assert "TOKENTEE_NAMES" not in os.environ
    options('budgets = "other.toml"\n', TOKENTEE_BUDGETS="mine.toml")
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
def test_modes_of_the_call_stand_above_those_of_the_file(words: str, modes: list[str]):
    Path("c.toml").write_text('listen = "127.0.0.1:81"\n')
    call = completed(parse(["--config", "c.toml", *words.split()]), {})
    assert list(call.options) == modes


def test_the_reference_has_every_key_and_reads_as_a_file():
    page = (REPOSITORY / "docs/reference.md").read_text().partition("## Settings file")[2]
    text = page.partition("```toml\n")[2].partition("```")[0]
    settings, problems = config_file.read(text)
    assert not problems
    keys = {each.encode_name for each in msgspec.structs.fields(config_file.ConfigFile)}
    assert keys - set(tomllib.loads(text)) == {"ledger"}
    (upstream,) = settings.upstream
    assert all(msgspec.structs.astuple(upstream))
