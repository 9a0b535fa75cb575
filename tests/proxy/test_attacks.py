"""Attacks with a neighbour: whatever one client or upstream sends, the others do not notice.

A few run by default; `pytest -m "proxy and (nightly or not nightly)" tests/proxy/test_attacks.py` runs
all of them.
"""

import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from urllib.request import urlopen

import pytest

from tests.conftest import Say
from tests.proxy import attacks, rows
from tests.proxy.arena import (
    Arena,
    check,
    exchange,
    figures_of,
    loads_of,
    normal,
    params,
    running_arena,
    section,
)
from tests.proxy.attack import Attack
from tests.proxy.attacks import ATTACKS, BY_NAME
from tests.proxy.mitmdump import Mitmdump, free_port
from tests.proxy.upstream import Answer, Raw, Request

pytestmark = [pytest.mark.proxy, pytest.mark.nightly, pytest.mark.timeout(300)]

SECTION = section("attacks")
PROBES_SLOW = 60


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    def script(request: Request) -> Answer | Raw:
        name = request.header("x-attack")
        if name is not None:
            return attacks.script(name, b"include_usage" in request.body)
        return normal(request)

    folder = tmp_path_factory.mktemp("attacks")
    options = {"tee_metrics": str(free_port())}
    with running_arena(folder, script=script, options=options) as running:
        yield running


def sent(attack: Attack, proxy: Mitmdump) -> bytes:
    """Status and body of the answer to an attack."""
    if attack.play is not None:
        return attack.play(proxy.address(), attack.name)
    status, body = exchange(
        proxy.address(),
        attack.target,
        attacks.body_of(attack.name),
        *attack.headers,
        ("x-attack", attack.name),
        *([("x-tokentee-tag", f"attack={attack.name}")] if attack.input_tokens is not None else []),
        raw_headers=attack.raw_headers,
    )
    return b"%d %s" % (status, body)


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(arena, attack, lambda proxy: sent(attack, proxy), partial(say_at_end, SECTION))
    if attack.input_tokens is not None:
        (row,) = rows.by_tag(arena.proxy(is_ours=True).ledger, "attack")[name]
        assert row["input_tokens"] == attack.input_tokens


def slow_probes(address: tuple[str, int]) -> bytes:
    """Connections that send a byte at a time, and beside them a probe that must be answered."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(address)) for _ in range(PROBES_SLOW)
        ]
        for byte in (b"G", b"E", b"T"):
            for connection in opened:
                with contextlib.suppress(ConnectionError):  # an older one is closed for a newer one
                    connection.sendall(byte)
        with urlopen(f"http://{address[0]}:{address[1]}/healthz", timeout=5) as answer:
            return b"%d" % answer.status


def test_slow_connections_to_the_health_endpoint(arena: Arena, say_at_end: Say) -> None:
    """It answers all the same, and its memory does not grow. A bare proxy has no such endpoint:
    compared is our own without an attack. The endpoint has a thread for each connection, and what a
    thread had waited for a processor is gone from the counters when it ends; so waits are shown here
    and not judged."""
    idle = arena.attack(lambda _: b"", is_ours=True)
    port = int(arena.options["tee_metrics"])
    seen = arena.attack(lambda _: slow_probes(("127.0.0.1", port)), is_ours=True)
    name = f"{PROBES_SLOW} slow connections to /healthz"
    say_at_end(SECTION, f"{name:<50} {figures_of(seen, idle)}")
    assert seen.answer == b"200"
    assert "memory grew" not in {*loads_of(seen, idle)}


def test_there_are_attacks_on_every_path() -> None:
    assert len(ATTACKS) >= 120
    assert len(BY_NAME) == len(ATTACKS)
    assert sum(attack.is_quick for attack in ATTACKS) >= 8
