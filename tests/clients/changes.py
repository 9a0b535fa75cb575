"""Prints which clients changed since the table in docs/clients.md was made.

    python -m tests.clients.changes              # all
    python -m tests.clients.changes Codex curl   # these

Installs the newest release of each agent, SDK, gateway and server, runs it without us and under `tokentee run`, and
holds what it asks, what usage comes of it and how it ends against `seen.json`. Exits with 1 if any changed.
`uv run pytest -m clients` makes the table and `seen.json` again.
"""

import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.clients import playing, table
from tests.clients.matrix import CLIENTS
from tests.clients.table import Facts


def main(names: list[str]) -> int:
    """How many clients changed in more than their version, as an exit code."""
    unknown = set(names) - {client.name for client in CLIENTS}
    if unknown:
        raise SystemExit(f"no client is named {', '.join(sorted(unknown))}")
    clients = [client for client in CLIENTS if client.name in names or not names]
    seen: dict[str, Facts] = json.loads(table.SEEN.read_text())
    out = Console(highlight=False, soft_wrap=True, markup=False)
    with tempfile.TemporaryDirectory() as folder, out.status("installing and running"):
        played = playing.play(clients, Path(folder), variants=("direct", "run"))
    changed = 0
    for name, now in table.facts(played, clients).items():
        lines = differences(seen.get(name, {}), now)
        is_changed = any(not line.startswith("version") for line in lines)
        changed += is_changed
        out.print(f"{'CHANGED' if is_changed else 'as seen':8} {name} {now['version'][0]}")
        for line in lines:
            out.print(f"    {line}")
    out.print(f"{changed} of {len(clients)} changed")
    return int(changed > 0)


def differences(before: Facts, now: Facts) -> list[str]:
    """In words, one line for each fact that came or went."""
    lines = []
    for kind, facts in now.items():
        known = before.get(kind, [])
        lines += [f"{kind} no more: {fact}" for fact in known if fact not in facts]
        lines += [f"{kind} now: {fact}" for fact in facts if fact not in known]
    return lines


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
