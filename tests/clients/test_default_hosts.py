"""Real SDKs at their default hosts, direct and under `tokentee run --`: what the program prints is
the same, and each call has its figures in the ledger, or the end of `run` names the host and the
line that records it. Writes the table of docs/clients.md after a run of all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from addon.run.command.hosts import base_url_variable
from tests.clients import default_hosts, playing, table
from tests.clients.default_hosts import SDKS, Ran, Sdk

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not playing.can_play(), reason="unshare may not make namespaces here"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def lines() -> Iterator[dict[str, str]]:
    found: dict[str, str] = {}
    yield found
    if len(found) == len(SDKS):
        table.put("default hosts", default_hosts.HEAD + "".join(found.values()))


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.package)
def test_nothing_passes_unseen(sdk: Sdk, tmp_path: Path, lines: dict[str, str]):
    played = default_hosts.play(sdk, tmp_path)
    direct, led = played["direct"], played["run"]
    assert direct.code == 0, direct.stderr
    assert (led.code, led.stdout) == (0, direct.stdout), led.stderr
    lines[sdk.package] = default_hosts.line(sdk, played)
    if sdk.goes_past:
        assert not led.ledger
        for host in sdk.hosts:
            assert f"to {host} went past the recorder" in led.stderr
        assert base_url_variable(sdk.hosts[0]) in led.stderr
    else:
        assert "went past the recorder" not in led.stderr
        assert_recorded(sdk, led)
    assert sdk.goes_past <= ("reverse" in played)
    if led_there := played.get("reverse"):
        assert (led_there.code, led_there.stdout) == (0, direct.stdout), led_there.stderr
        assert_recorded(sdk, led_there)


def assert_recorded(sdk: Sdk, ran: Ran) -> None:
    """Each call has a row with the figures that the program printed."""
    assert [row["outcome"] for row in ran.ledger] == ["complete"] * sdk.calls
    figures = [
        (row["input_tokens"], row["output_tokens"])
        for row in ran.ledger
        if row["input_tokens"] is not None
    ]
    assert len(figures) == sdk.calls - sdk.without_figures
    words = [line.split() for line in ran.stdout.splitlines()]
    printed = [tuple(int(word) for word in each if word.isdigit()) for each in words]
    stated = list(dict.fromkeys(each for each in printed if each))
    assert stated
    for shown, recorded in zip(stated, figures, strict=False):  # some SDKs show one of both
        assert recorded[: len(shown)] == shown
