"""What is remembered of answers that are booked is bounded."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from addon.proxy import running as running_module
from addon.proxy.running import Running
from tests.ledger.written import settled


def new() -> Running:
    nothing = SimpleNamespace()
    return Running(settings=nothing, rules=nothing, ledger=nothing, price=nothing)  # type: ignore[arg-type]


def answer(response_id: str | None):
    return replace(settled("one"), response_id=response_id)


def test_the_oldest_answer_is_forgotten_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running_module, "BOOKED_MAX", 3)
    running = new()
    for number in range(5):
        running.remember_booked(answer(f"r{number}"))
    assert [running.is_new_result(answer(f"r{number}")) for number in range(5)] == [
        True, True, False, False, False
    ]  # fmt: skip


def test_an_answer_without_an_id_is_always_new():
    running = new()
    running.remember_booked(answer(None))
    assert running.is_new_result(answer(None))
    assert not running.booked


def test_the_same_id_at_another_origin_is_another_answer():
    running = new()
    running.remember_booked(answer("r"))
    assert not running.is_new_result(answer("r"))
    assert running.is_new_result(replace(answer("r"), origin="https://other.example"))
