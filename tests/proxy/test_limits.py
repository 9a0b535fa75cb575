"""What answers state of limits, through a real mitmdump: kept as stated, bounded, never in the way.

Each header set goes through ours and a bare mitmdump: the client sees the same of both.
"""

import json
import time
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from addon.cli import application
from addon.dialects.limits import QUOTAS_MAX
from tests.proxy import rows
from tests.proxy.pair import ANTHROPIC, Pair, exchange, new_tag, pair
from tests.proxy.upstream import Answer
from tests.proxy.wire import Wire

pytestmark = pytest.mark.proxy

UNIFIED = "anthropic-ratelimit-unified"
RESET = int(time.time()) + 3_600

CLAUDE = (
    (f"{UNIFIED}-status", "allowed_warning"),
    (f"{UNIFIED}-5h-status", "allowed_warning"),
    (f"{UNIFIED}-5h-utilization", "0.83"),
    (f"{UNIFIED}-5h-reset", str(RESET)),
    (f"{UNIFIED}-7d-status", "allowed"),
    (f"{UNIFIED}-7d-utilization", "0.4"),
    (f"{UNIFIED}-7d-reset", str(RESET + 86_400)),
    (f"{UNIFIED}-representative-claim", "five_hour"),
    ("anthropic-organization-id", "an-organization"),
)
NO_FIGURES = ("many", "-1", "NaN", "Infinity", "1e999", "0x10", "", "9" * 300, "1_000", "\u0663")
NO_RESETS = ("1", "-5", "253402300799", "9999-12-31T23:59:59Z", "9" * 40, "yesterday", "0001-01-01")

HOSTILE = {
    "no figures": [
        (name, value.encode().decode("latin-1"))
        for value in NO_FIGURES
        for name in (
            f"{UNIFIED}-5h-utilization",
            "anthropic-ratelimit-tokens-limit",
            "x-ratelimit-remaining-requests",
            "x-codex-primary-used-percent",
            "x-quota-snapshot-chat",
            "retry-after",
        )
    ],
    "no resets": [(f"{UNIFIED}-{n}h-reset", value) for n, value in enumerate(NO_RESETS, 1)],
    "made-up windows": [(f"{UNIFIED}-{n}h-utilization", "0.5") for n in range(400)],
    "made-up names": [(f"x-codex-made-up-{n}-primary-used-percent", "1") for n in range(400)],
    "a long name": [(f"{UNIFIED}-5h_{'a' * 4_000}-utilization", "0.5")],
    "a long value": [(f"{UNIFIED}-5h-status", "a" * 4_000)],
}


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("limits"), provider="anthropic") as running:
        yield running


def ask(
    proxies: Pair,
    wire: Wire,
    headers: tuple[tuple[str, str], ...] | list[tuple[str, str]] = (),
    *,
    status: int = 200,
    more: tuple[bytes, ...] = (),
) -> rows.Row:
    """The row of one exchange, after which the client saw the same of both proxies."""
    answer = Answer(
        pieces=(wire.frames[0], *more, *wire.frames[1:]) if status == 200 else (wire.error_body,),
        content_type=wire.content_type if status == 200 else "application/json",
        status=status,
        headers=tuple(headers),
    )
    proxies.upstream.script = lambda _: answer
    tag = new_tag()
    ours = exchange(proxies.tee, wire, tag, ("authorization", "Bearer sk-ant-oat01-none"))
    assert proxies.bare is not None
    bare = exchange(proxies.bare, wire, tag, ("authorization", "Bearer sk-ant-oat01-none"))
    assert (ours.status, ours.headers, ours.body) == (bare.status, bare.headers, bare.body)
    assert ours.body == answer.body
    return proxies.row(tag)


def quotas(proxies: Pair, row: rows.Row) -> list[rows.Row]:
    asked = "SELECT * FROM quotas WHERE exchange_id = ? ORDER BY window_minutes"
    return rows.query(proxies.tee.ledger, asked, row["id"])


def test_claude_and_its_command(proxies: Pair) -> None:
    first = ask(proxies, ANTHROPIC, CLAUDE)
    found = quotas(proxies, first)
    assert [(one["window"], one["used_ppm"], one["status"]) for one in found] == [
        ("5h", 830_000, "allowed_warning"),
        ("7d", 400_000, "allowed"),
    ]
    assert {one["holder"] for one in found} == {first["account"]}
    assert quotas(proxies, ask(proxies, ANTHROPIC, CLAUDE)) == [], "no figure changed"
    call = ["limits", "--format", "json", "--ledger", f"sqlite:///{proxies.tee.ledger}"]
    shown = CliRunner().invoke(application(), call)
    plans = [each for each in json.loads(shown.stdout) if each["kind"] == "plan"]
    assert [(each["window"], each["used_percent"]) for each in plans] == [
        ("5h", 83.0),
        ("7d", 40.0),
    ]
    assert b"an-organization" not in proxies.tee.ledger.read_bytes()


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_headers_change_nothing_for_the_client(
    proxies: Pair, attack: str, status: int
) -> None:
    row = ask(proxies, ANTHROPIC, HOSTILE[attack], status=status)
    assert (row["degraded"], row["retry_after_ms"]) == (None, None)
    if status == 200:
        assert {name: row[name] for name in ANTHROPIC.figures} == dict(ANTHROPIC.figures)
    found = quotas(proxies, row)
    if not attack.startswith("made-up"):
        assert found == []
    elif status == 200:
        assert len(found) == QUOTAS_MAX
    assert all(len(one["window"]) < 100 for one in found)
