"""Attacks with a neighbour: whatever one client or upstream sends, the others do not notice.

A few run by default; `pytest -m "proxy and (soak or not soak)" tests/proxy/test_attacks.py` runs
all of them.
"""

from collections.abc import Iterator

import pytest

from tests.conftest import Say
from tests.proxy import attacks
from tests.proxy.arena import Arena, check, exchange, normal, params, running_arena, section
from tests.proxy.attack import Attack
from tests.proxy.attacks import ATTACKS, BY_NAME
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.upstream import Answer, Raw, Request

pytestmark = [pytest.mark.proxy, pytest.mark.timeout(300)]

SECTION = section("attacks")


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    def script(request: Request) -> Answer | Raw:
        name = request.header("x-attack")
        if name is not None:
            return attacks.script(name, b"include_usage" in request.body)
        return normal(request)

    with running_arena(tmp_path_factory.mktemp("attacks"), script=script) as running:
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
        raw_headers=attack.raw_headers,
    )
    return b"%d %s" % (status, body)


@pytest.mark.parametrize("name", params(ATTACKS))
def test_nobody_notices(arena: Arena, name: str, say_at_end: Say) -> None:
    attack = BY_NAME[name]
    check(
        arena,
        name,
        lambda proxy: sent(attack, proxy),
        say=lambda line: say_at_end(SECTION, line),
        is_compared=attack.is_compared,
    )


def test_there_are_attacks_on_every_path() -> None:
    assert len(ATTACKS) >= 34
    assert len(BY_NAME) == len(ATTACKS)
    assert sum(attack.is_quick for attack in ATTACKS) >= 8
