"""Settings as words for the proxy; what stands above them."""

from pathlib import Path

from addon.run.call.settings import read
from addon.run.call.words import files_of, modes_of, options_of, words_of, workers_of
from tests.addon.run.call.test_settings import WHOLE

SETTINGS, _ = read(WHOLE)


def options(environment=None, url="sqlite:///l.db"):
    return options_of(
        SETTINGS, ledger_url=url, folder=Path("/etc/tokentee"), environment=environment or {}
    )


def test_every_setting_is_an_option():
    assert {option.name: option.value for option in options()} == {
        "ledger_url": "sqlite:///l.db",
        "ledger_commit": "async",
        "tee_hosts": "llm.example.com,127.0.0.1:11434=ollama",
        "tee_tags": "team=search",
        "tee_log_format": "json",
        "tee_metrics": "127.0.0.1:9464",
        "tee_otlp": "http://127.0.0.1:4318",
    }
    assert modes_of(SETTINGS) == [
        "reverse:https://api.openai.com@127.0.0.1:8001",
        "reverse:http://127.0.0.1:11434/@[::1]:8002",
        "regular@127.0.0.1:8080",
    ]


def test_a_provider_of_an_upstream_without_a_port():
    settings, _ = read(
        "[[upstream]]\nname='a'\nurl='https://h.example'\nlisten='h:1'\nprovider='p'\n"
        "[[upstream]]\nname='b'\nurl='https://g.example'\nlisten='h:2'\n"
    )
    found = options_of(settings, ledger_url=None, folder=Path(), environment={})
    assert [(option.name, option.value) for option in found] == [("tee_hosts", "h.example=p")]
    assert modes_of(settings)[1:] == ["reverse:https://g.example@h:2"]


def test_the_environment_stands_above_the_file():
    found = {option.name: option for option in options({"TOKENTEE_LEDGER": "sqlite:///e.db"})}
    assert (found["ledger_url"].value, found["ledger_url"].source) == (
        "sqlite:///e.db",
        "TOKENTEE_LEDGER",
    )


def test_options_of_the_command_line_stand_above_both():
    words = words_of(options(), modes_of(SETTINGS), given=frozenset({"ledger_url"}), has_modes=True)
    assert "--mode" not in words
    assert not any(word.startswith("ledger_url=") for word in words)
    assert words.count("--set") == len(options()) - 1
    whole = words_of(options(), modes_of(SETTINGS), given=frozenset(), has_modes=False)
    assert whole.count("--mode") == 3


def test_workers_and_the_files_of_names_and_budgets():
    settings, _ = read("workers = 3\nbudgets = 'b.toml'\nnames = '/n.toml'\n")
    folder = Path("/etc/tokentee")

    def found(environment: dict[str, str]) -> dict[str, tuple[str, str]]:
        files = files_of(settings, folder=folder, environment=environment)
        workers = workers_of(settings, environment)
        return {each.name: (each.value, each.source) for each in [*files, workers] if each}

    assert found({}) == {
        "names": ("/n.toml", "file"),
        "budgets": ("/etc/tokentee/b.toml", "file"),
        "workers": ("3", "file"),
    }
    assert found({"TOKENTEE_BUDGETS": "/mine.toml", "TOKENTEE_WORKERS": "2"}) == {
        "names": ("/n.toml", "file"),
        "budgets": ("/mine.toml", "TOKENTEE_BUDGETS"),
        "workers": ("2", "TOKENTEE_WORKERS"),
    }
    nothing, _ = read("")
    assert workers_of(nothing, {}) is None
    assert files_of(nothing, folder=folder, environment={}) == []
