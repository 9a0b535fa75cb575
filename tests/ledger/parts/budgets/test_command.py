"""`tokentee budget`, as it is called."""

import json

import pytest

from ledger.model.errors import LedgerError


@pytest.fixture
def budgets(tmp_path):
    path = tmp_path / "budgets.toml"

    def make(usd):
        path.write_text(f'[[budget]]\nname = "all"\nusd = {usd}\nperiod = "month"\n')
        return str(path)

    return make


@pytest.fixture(autouse=True)
def november(monkeypatch):
    from datetime import UTC, datetime

    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 11, 16, tzinfo=UTC)

    monkeypatch.setattr("ledger.parts.budgets.command.datetime", Then)


def test_budgets_are_shown_and_checked(run, budgets):
    result = run("budget", "--budgets", budgets(1))
    assert result.stdout.splitlines()[0] == "Budgets"
    assert result.stdout.splitlines()[-1].split()[:2] == ["all", "2026-11"]
    assert "they never stop traffic" in result.stderr
    run("budget", "check", "--budgets", budgets(1))
    result = run("budget", "check", "--budgets", budgets(0.001), "-f", "json", exits=1)
    assert json.loads(result.stdout)["budgets"][0]["state"] == "over"


def test_alerts_are_sent_once(run, budgets, own_ledger):
    result = run("budget", "alert", "--budgets", budgets("0.000001"), url=own_ledger)
    assert "tokentee: budget all, 2026-11: $0.000060 of $0.0000010 (100%)" in result.stderr
    assert result.stderr.endswith("sent: 1 alert\n")
    result = run("budget", "alert", "--budgets", budgets("0.000001"), url=own_ledger)
    assert result.stderr == "sent: 0 alerts\n"


def test_an_alert_that_no_address_took_is_said_until_it_is_sent(run, tmp_path, own_ledger):
    file = tmp_path / "budgets.toml"
    budget = '[[budget]]\nname = "all"\nusd = 0.000001\nperiod = "month"\n'
    file.write_text(f'{budget}[[alert]]\nwebhook = "http://127.0.0.1:9/"\n')
    for _ in range(2):
        words = ("budget", "alert", "--budgets", str(file))
        said = run(*words, url=own_ledger, exits=1).stderr
        assert said.endswith("sent: 0 alerts; not delivered: 1, tried again after 10 min\n")


def test_a_cap_of_a_person_takes_the_names_that_are_given(run, tmp_path, own_ledger):
    caps, names = tmp_path / "budgets.toml", tmp_path / "names.toml"
    caps.write_text('[[cap]]\nname = "ada"\nusd = 5\nperiod = "day"\nperson = "Ada"\n')
    names.write_text('[[name]]\nkey_hint = "1111"\nname = "Ada"\n')
    words = ("--budgets", str(caps), "--names", str(names))
    assert "ada" in run("budget", *words).stdout
    run("budget", "check", *words)
    run("budget", "alert", *words, url=own_ledger)
    with pytest.raises(LedgerError, match="cap ada is for a person: there is no names file; TOKEN"):
        run("budget", *words[:2])


def test_without_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TOKENTEE_BUDGETS", raising=False)
    with pytest.raises(LedgerError, match=r"there are no budgets: write .*budgets.toml"):
        run("budget")
