"""Real clients, run as their users run them: do they work, are they recorded, are they unchanged?

Each is run without us, under `tokentee run`, and with a plain `mitmdump -s addon/tee.py`, against
fake providers on loopback; and some under a cap that refuses all. The fast part runs by default; `pytest -m clients` installs and runs
the others too, and writes the table of docs/clients.md (`tests/clients/table.py`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import playing, table
from tests.clients.matrix import CAPPED, CLIENTS, Client
from tests.clients.playing import Played, name_of

FAST = [client for client in CLIENTS if client.is_fast]
BEHIND_MITMDUMP = [client for client in FAST if not client.is_sdk]
LED = ("run", "mitmdump")
FAST_LED = [("run", client) for client in FAST]
FAST_LED += [("mitmdump", client) for client in BEHIND_MITMDUMP]

pytestmark = [
    pytest.mark.skipif(not playing.can_play(), reason="unshare may not make namespaces here"),
    pytest.mark.timeout(3000),
]


class Checks:
    """What holds of one client in one variant."""

    def test_it_works(self, client: Client, variant: str, played: dict[str, Played]):
        ran = played[variant].clients[name_of(client)]
        assert ran["code"] == played["direct"].clients[name_of(client)]["code"] == 0, ran
        assert len(played[variant].asked_by(client)) >= client.calls

    def test_it_is_recorded_exactly(self, client: Client, variant: str, played: dict[str, Played]):
        if variant in client.goes_past_in:
            assert not played[variant].rows_of(client)
            return
        asked = sorted(each["answer"] for each in played[variant].asked_by(client))
        recorded = sorted(
            [row["response_id"], row["input_tokens"], row["output_tokens"]]
            for row in played[variant].rows_of(client)
        )
        assert recorded == asked
        assert all(row["outcome"] == "complete" for row in played[variant].rows_of(client))

    def test_it_is_unchanged(
        self, client: Client, variant: str, played: dict[str, Played], tmp_path: Path
    ):
        own = client.behind_mitmdump if variant == "mitmdump" else ()
        found = playing.differences(client, played["direct"], played[variant], tmp_path, own)
        assert not found

    def test_its_plan_is_recognised(self, client: Client, variant: str, played: dict[str, Played]):
        rows = played[variant].rows_of(client)
        if not client.plan:
            assert not {row["billing"] for row in rows} & {"plan", "free"}
            pytest.skip("it is billed by tokens")
        assert {row["billing"] for row in rows} == {"plan"}
        asked = played[variant].asked_by(client)
        stated = {(each["answer"][0], *limit) for each in asked for limit in each["limits"]}
        kept = {
            (row["response_id"], row["window"], row["used_ppm"] // 10_000)
            for row in played[variant].limits
            if row["provider"] == client.plan and row["kind"] == "plan"
        }
        changed = {one for one in stated if one[1] == "5h" or one[0].endswith("-1")}
        assert kept == changed

    def test_its_session_is_recognised(
        self, client: Client, variant: str, played: dict[str, Played]
    ):
        if not client.session:
            pytest.skip("its wire tells none")
        assert all(row["session_id"] for row in played[variant].rows_of(client))


@pytest.fixture(scope="module")
def fast_played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    folder = tmp_path_factory.mktemp("fast")
    return playing.play(FAST, folder, behind_mitmdump=BEHIND_MITMDUMP)


@pytest.fixture(scope="module")
def all_played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Played]]:
    played = playing.play(CLIENTS, tmp_path_factory.mktemp("all"))
    yield played
    table.write(played)


@pytest.mark.proxy
@pytest.mark.parametrize(
    ("variant", "client"),
    [
        pytest.param(variant, client, id=f"{variant}-{name_of(client)}")
        for variant, client in FAST_LED
    ],
)
class TestFast(Checks):
    """Clients that are there anyway."""

    @pytest.fixture
    def played(self, fast_played: dict[str, Played]) -> dict[str, Played]:
        return fast_played


@pytest.mark.clients
@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
@pytest.mark.parametrize("variant", LED)
class TestAll(Checks):
    """All of them, each in an environment of its own."""

    @pytest.fixture
    def played(self, all_played: dict[str, Played]) -> dict[str, Played]:
        return all_played

    def test_what_goes_past_is_said(self, client: Client, variant: str, played: dict[str, Played]):
        if variant == "run" and client.why_not:
            assert "api.openai.com went past the recorder" in played["run"].stderr


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Played:
    played = playing.play(CAPPED, tmp_path_factory.mktemp("capped"), variants=("capped",))
    return played["capped"]


@pytest.mark.clients
@pytest.mark.parametrize("client", CAPPED, ids=name_of)
def test_under_a_cap_it_stops_at_once_and_shows_why(client: Client, capped: Played):
    ran = capped.clients[name_of(client)]
    assert ran["code"] not in (0, "timeout")
    assert not capped.asked_by(client)
    assert len(capped.refused_of(client)) == client.refusals
    assert "refused by the cap run" in ran["stdout"] + ran["stderr"]
