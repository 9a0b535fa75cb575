"""What is put in where the process is ours is taken out again, and what was written for another
mitmproxy stays out."""

import importlib
import logging
from pathlib import Path

import pytest

from addon.parts.fast import mechanisms
from addon.proxy import sources
from tests.addon.proxy.test_guest import play

pytestmark = pytest.mark.large


@pytest.fixture(autouse=True)
def everything_is_imported() -> None:
    """What is imported while the recorder works would be compared with nothing."""
    for name in mechanisms.NAMES:
        importlib.import_module(f"addon.parts.fast.{name}")


def test_a_mechanism_for_another_mitmproxy_is_left_out(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, caplog
):
    caplog.set_level(logging.INFO)
    every, _ = play(ledger, tee_fast="yes")
    for name in mechanisms.NAMES:
        with monkeypatch.context() as patch:
            relied_on = importlib.import_module(f"addon.parts.fast.{name}").RELIES_ON
            for source in relied_on:
                patch.setitem(relied_on, source, "0" * 16)
            during, after = play(ledger, tee_fast="yes")
        assert during <= every
        assert after == set()
        assert during < every or name == "hook_lists"  # which is in the master alone
        assert any(f"not used: {name} (another " in each for each in caplog.messages)


def test_a_mechanism_that_cannot_be_imported_is_left_out(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, caplog
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mechanisms, "NAMES", ("no_such_module", "message_types"))
    during, after = play(ledger, tee_fast="yes")
    assert "mitmproxy.http:MessageData.__post_init__" in during
    assert after == set()
    assert any("not used: no_such_module (No module named" in each for each in caplog.messages)


def test_what_is_relied_on_is_known_here():
    """`.ci/against` runs this with other versions of mitmproxy."""
    for name in mechanisms.NAMES:
        sources.check(importlib.import_module(f"addon.parts.fast.{name}").RELIES_ON)
