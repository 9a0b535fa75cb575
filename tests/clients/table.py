"""The table of docs/clients.md, and the facts that it was made of (`seen.json`)."""

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients import playing
from tests.clients.matrix import CLIENTS, Client
from tests.clients.playing import Played, name_of

type Facts = dict[str, list[str]]
SEEN = Path(__file__).with_name("seen.json")
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
HEAD = """\
| client | works | recorded exactly | unchanged | session |
|---|---|---|---|---|
"""


def write(played: dict[str, Played]) -> None:
    """Put the table between the page's markers, and what it was made of into `seen.json`."""
    SEEN.write_text(json.dumps(facts(played, CLIENTS), indent=1, sort_keys=True) + "\n")
    lines = [_line(client, played) for client in CLIENTS]
    notes = [f"{client.name}: {client.why_not}.\n" for client in CLIENTS if client.why_not]
    put("clients", f"{HEAD}{''.join(lines)}\n{''.join(notes)}")


def put(mark: str, table: str) -> None:
    """Put a table between the markers of the page that have this name."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"the page has no place for {mark}"
    PAGE.write_text(f"{before}{begin}\n{table}{end}{after}")


def facts(played: dict[str, Played], clients: Sequence[Client]) -> dict[str, Facts]:
    """By a client's name: what a new release may change.

    `requests`: each kind once, as method, host, path, names of headers and of the body's keys;
    `usage`: what upstream stated of each answer and what the ledger has; `end`: its exit code and
    the outcomes of its rows.
    """
    return {client.name: _facts_of(client, played) for client in clients}


def _facts_of(client: Client, played: dict[str, Played]) -> Facts:
    direct, led = played["direct"], played["run"]
    rows = led.rows_of(client)
    recorded = sorted([row["input_tokens"], row["output_tokens"]] for row in rows)
    return {
        "version": [_version(client)],
        "requests": sorted({_kind_of(client, each) for each in direct.asked_by(client)}),
        "usage": [
            f"stated {sorted(each['answer'][1:] for each in led.asked_by(client))}",
            f"recorded {recorded}",
        ],
        "end": [
            f"exit {direct.clients[playing.name_of(client)]['code']}",
            *sorted({row["outcome"] for row in rows}),
        ],
    }


def _kind_of(client: Client, request: dict[str, Any]) -> str:
    names = sorted({name.lower() for name, _ in request["headers"]})
    path = playing.settled(client, request["path"])
    keys = sorted(json.loads(request["body"] or "{}"))
    where = f"{request['method']} {request['host']}{path}"
    return f"{where}; headers {' '.join(names)}; body {' '.join(keys)}"


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
        if client.shares or package == "ai":
            package = client.name if client.name.startswith("@") else package
        return playing.version_of(package, owner.packages, is_node=True)
    if client.is_node:
        return ""
    return playing.version_of(package, owner.packages, is_node=False)
