"""Real clients, run as their users run them: do they work, are they recorded, are they unchanged?

Each is run without us, under `tokentee run`, and with a plain `mitmdump -s addon/tee.py`, against
fake providers on loopback; and some under a cap that refuses all. The fast part runs by default; `pytest -m clients` installs and runs
the others too, and writes the table of docs/clients.md.
"""

import importlib.metadata
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import playing
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
    write_table(played)


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


PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN, END = "<!-- clients -->", "<!-- /clients -->"
HEAD = """\
| client | works | recorded exactly | unchanged | session |
|---|---|---|---|---|
"""


def write_table(played: dict[str, Played]) -> None:
    """Put the table between the PAGE's markers."""
    text = PAGE.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert pattern.search(text), "the PAGE has no place for the table"
    lines = [_line(client, played) for client in CLIENTS]
    notes = [f"{client.name}: {client.why_not}.\n" for client in CLIENTS if client.why_not]
    block = f"{BEGIN}\n{HEAD}{''.join(lines)}\n{''.join(notes)}{END}"
    PAGE.write_text(pattern.sub(lambda _: block, text))


def _line(client: Client, played: dict[str, Played]) -> str:
    direct, led = played["direct"], played["run"]
    name = name_of(client)
    works = led.clients[name]["code"] == 0 and len(led.asked_by(client)) >= client.calls
    asked = sorted(each["answer"] for each in led.asked_by(client))
    recorded = sorted(
        [row["response_id"], row["input_tokens"], row["output_tokens"]]
        for row in led.rows_of(client)
    )
    if not client.calls:
        exact = "no LLM call: tunnelled"
    else:
        exact = f"{len(recorded)} of {len(asked)}" + ("" if recorded == asked else ", **no**")
    unchanged = not playing.differences(client, direct, led, Path())
    has_session = bool(led.rows_of(client)) and all(
        row["session_id"] for row in led.rows_of(client)
    )
    session = "yes" if has_session else ("**no**" if client.session else "-")
    version = _version(client)
    shown = f"{client.name} {version}".strip()
    return f"| {shown} | {_yes(works)} | {exact} | {_yes(unchanged)} | {session} |\n"


def _yes(fact: bool) -> str:
    return "yes" if fact else "**no**"


def _version(client: Client) -> str:
    """The version that was installed, where that is told easily."""
    owner = next(each for each in CLIENTS if each.name == (client.shares or client.name))
    if not owner.packages:
        name = client.name.partition(" (Python)")[0]
        try:
            return importlib.metadata.version(name) if client.is_python else ""
        except importlib.metadata.PackageNotFoundError:
            return ""
    package = owner.packages[0].partition("[")[0]
    if client.is_node and not package.startswith("node@"):
        folder = playing._installed(owner.packages, is_node=True)
        if client.shares or package == "ai":
            package = client.name if client.name.startswith("@") else package
        path = folder / "node_modules" / package / "package.json"
        return json.loads(path.read_text())["version"] if path.exists() else ""
    if client.is_node:
        return ""
    folder = playing._installed(owner.packages, is_node=False)
    pattern = f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info"
    found = next(folder.glob(pattern), None)
    return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else ""
