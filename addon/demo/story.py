"""Wiring. `tokentee demo`: plays the scenes through a real mitmdump, compares the ledger with what
was sent, and shows it on one screen."""

import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from addon.demo import traffic
from addon.demo.scenes import ORDINARY, Scene, scenes
from addon.run.leftovers import run_folder
from ledger.figures import queries
from ledger.reports import report_tables
from ledger.reports.layout import Amount, Table, TableColumn, wrapped
from ledger.reports.render import print_table
from ledger.store.db import disposing, open_engine
from ledger.store.scope import Scope
from ledger.text.hints import as_typed

DEMO_COLUMNS = (
    TableColumn(name="agent", heading="The agent …", is_number=False, wraps=True),
    TableColumn(name="client", heading="It got", is_number=False, wraps=True),
    TableColumn(name="input", heading="Input"),
    TableColumn(name="output", heading="Output"),
    TableColumn(name="cost", heading="Cost"),
    TableColumn(name="ledger", heading="What the ledger knows", is_number=False, wraps=True),
)


def demo() -> int:
    """Play it; the exit code: 0 if every client got its bytes and the ledger every figure."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Everything is in one folder of its own; the user can look into the ledger in it.
    ledger = Path(tempfile.mkdtemp(prefix="tokentee-demo-")) / "ledger.db"
    played = {scene.name: scene for scene in scenes()}
    progress = Console(stderr=True, highlight=False)
    try:
        with contextlib.ExitStack() as running:
            upstreams = {
                provider: running.enter_context(traffic.serving(played))
                for provider in dict.fromkeys(scene.provider for scene in played.values())
            }
            progress.print("Starting mitmdump -s addon/tee.py in front of local systems …")
            confdir = running.enter_context(run_folder()).path
            ports = running.enter_context(traffic.recording(ledger, confdir, upstreams))
            progress.print(f"Sending {len(played)} requests …")
            bodies = {n: traffic.play(scene, ports[scene.provider]) for n, scene in played.items()}
            progress.print("Stopping mitmdump and reading the ledger …\n")
        return 1 if show(ledger, bodies) else 0
    except BaseException:
        shutil.rmtree(ledger.parent, ignore_errors=True)
        raise


def show(ledger: Path, bodies: Mapping[str, str]) -> list[str]:
    """Print the story, the report and the next steps; returns what is wrong, each as a line."""
    # With SQL, as any user reads it.
    with contextlib.closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM requests ORDER BY opened_at, id").fetchall()
    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=100)
    out.print(
        "An agent of the team `search` made five calls, through a real recording proxy, to fake "
        "providers on this machine.\n"
    )
    by_name = {row["session_id"]: row for row in found}
    lines = []
    for scene in (scene for scene in scenes() if scene.name in by_name):
        row, body = by_name[scene.name], bodies[scene.name]
        got = "other bytes"
        if scene.status != 200:
            got = f"HTTP {scene.status}"
        elif body == scene.client_body:
            got = f"{len(body):,} bytes, {'then it left' if scene.leaves else 'as sent'}"
        mark = "~" if row["usage_source"] == "estimated" else ""
        names = ("input_tokens", "output_tokens", "cost_picousd")
        *tokens, amount = (row[f"estimated_{name}" if mark else name] for name in names)
        cost = row["cost_state"] if row["billing"] == "metered" else row["billing"]
        if amount is not None:
            cost = Amount(picousd=amount, mark=mark)
        cells = [f"{mark}{count}" if mark else count for count in tokens]
        lines.append((scene.name, got, *cells, cost, scene.known))
    print_table(Table(columns=DEMO_COLUMNS, rows=tuple(lines)), out)
    note = (
        "The first answer carried no usage, as its client had asked for none; the ledger has it "
        f"all the same. {sum(row['usage_stripped'] for row in found)} answer was edited for that, "
        "and its client got what it would have got without us, byte for byte."
    )
    out.print(wrapped(note, out.width), markup=False)
    url = f"sqlite:///{ledger}"
    with disposing(open_engine(url)) as engine:
        report = queries.report(engine, ["tag:team", "model"], Scope())
    out.print()
    print_table(report_tables.screen(report), out, "tokentee report --by tag:team,model")
    for text in report_tables.notes(report):
        out.print(wrapped(text, out.width), markup=False)
    steps = (
        f"\nLook into it:\n  tokentee serve --open --ledger {url}\n"
        f"  tokentee requests --ledger {url}\n"
        "Now for your agent:\n  tokentee run -- claude\n  tokentee report --since today\n"
        "  tokentee limits"
    )
    out.print(as_typed(steps, os.environ), soft_wrap=True)
    mistakes = mistakes_in(scenes(), bodies, found)
    for mistake in mistakes:
        out.print(f"WRONG  {mistake}", markup=False)
    return mistakes


def mistakes_in(
    played: Sequence[Scene], bodies: Mapping[str, str], found: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The differences of ledger and clients from upstream, as lines."""
    mistakes = []
    for scene in played:
        rows = [row for row in found if row["session_id"] == scene.name]
        if bodies[scene.name] != scene.client_body:
            mistakes.append(f"{scene.name}: the client did not get what upstream sent")
        if len(rows) != 1:
            mistakes.append(f"{scene.name}: {len(rows)} rows instead of one")
            continue
        expected = {"provider": scene.provider, **ORDINARY, **scene.row}
        mistakes += [
            f"{scene.name}: {name} is {rows[0][name]!r}, sent was {value!r}"
            for name, value in expected.items()
            if rows[0][name] != value
        ]
    return mistakes
