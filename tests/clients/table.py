"""The table of clients in docs/clients.md, written by the run that proves it."""

import importlib.metadata
import json
import re
from pathlib import Path

from tests.clients import installing, playing
from tests.clients.matrix import CLIENTS, Client
from tests.clients.playing import Played

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN, END = "<!-- clients -->", "<!-- /clients -->"
HEAD = """\
| client | works | recorded exactly | unchanged | session |
|---|---|---|---|---|
"""


def write(played: dict[str, Played]) -> None:
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
    name = installing.name_of(client)
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
        folder = installing._installed(owner.packages, is_node=True)
        if client.shares or package == "ai":
            package = client.name if client.name.startswith("@") else package
        path = folder / "node_modules" / package / "package.json"
        return json.loads(path.read_text())["version"] if path.exists() else ""
    if client.is_node:
        return ""
    folder = installing._installed(owner.packages, is_node=False)
    pattern = f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info"
    found = next(folder.glob(pattern), None)
    return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else ""
