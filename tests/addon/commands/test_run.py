"""`tokentee run`: settings and workers."""

from pathlib import Path

import pytest

from addon.commands.run import run
from addon.run.call.arguments import parse
from ledger.model.errors import WrongCallError
from tests.named import for_each


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a test leave what a config file says in the environment of the next."""
    for name in ("CONFIG", "LEDGER", "WORKERS", "NAMES", "BUDGETS"):
        monkeypatch.setenv(f"TOKENTEE_{name}", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_workers_are_run_for_a_proxy_alone(monkeypatch: pytest.MonkeyPatch):
    from addon.run import workers

    monkeypatch.setattr(
        workers, "run_workers", lambda count, make_call: (count, make_call().workers)
    )
    assert run(["--workers", "2"]) == (2, 2)  # type: ignore[comparison-overlap]


@for_each(
    "words, why",
    [
        ("--unpriced maybe --max-usd 5 -- true", "'maybe' is neither refuse nor pass"),
        ("--unpriced pass -- true", "--unpriced is for a cap"),
        ("--max-usd 5 --unpriced pass", "is for a command"),
    ],
)
def test_what_has_no_bound_is_refused_or_passed_by_a_cap_of_a_command(words, why):
    with pytest.raises(WrongCallError, match=why):
        parse(words.split())
    (cap,) = parse(["--max-usd", "5", "--unpriced", "pass", "--", "true"]).caps
    assert cap.unpriced == "pass"
