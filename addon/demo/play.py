"""Wiring. Plays every scene through a real mitmdump, and compares the ledger with upstream."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from addon.demo import show, traffic
from addon.demo.scene import Scene
from ledger.figures import queries
from ledger.reports import report_tables
from ledger.reports.layout import wrapped
from ledger.reports.render import print_table
from ledger.store.db import disposing, open_engine
from ledger.store.scope import Scope


def demo(show_all: Callable[[Path], int]) -> int:
    """Run a demo; the exit code: 0 if the ledger agrees with upstream, 1 if not."""
    # Everything is in one folder of its own; the user can query the ledger in it.
    folder = Path(tempfile.mkdtemp(prefix="tokentee-demo-"))
    try:
        return show_all(folder / "ledger.db")
    except BaseException as ended:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(ended, asyncio.CancelledError):
            return 128 + signal.SIGTERM
        raise


def seeds(ledger: Path) -> int:
    """Five gateways, each as it answers; the exit code."""
    scenes = seed_scenes()
    bodies = asyncio.run(play_all(scenes, ledger))
    found = show.read(ledger)
    out = show.console()
    print_table(show.requests(found), out)
    for note in show.notes(found):
        out.print(wrapped(note, out.width), markup=False)
    print_report(ledger, out, "provider")
    out.print(f"\nThe ledger: {ledger}\nTwo questions to ask it:")
    for query in show.queries(ledger):
        out.print(f"  {query}", soft_wrap=True, markup=False)
    wrong = mistakes_in(scenes, bodies, found)
    for mistake in wrong:
        out.print(f"WRONG  {mistake}", markup=False)
    if wrong:
        return 1
    out.print(f"\nAll {len(scenes)} requests stand in the ledger as upstream answered them.")
    return 0


def seed_scenes() -> tuple[Scene, ...]:
    """The scenes of `seeds.toml`, in their order."""
    found = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text())["scene"]
    for answer in (each["answer"] for each in found):
        for key in ("pieces", "pieces_when_asked"):
            if isinstance(answer.get(key), str):
                answer[key] = [f"{event}\n\n" for event in answer[key].split("\n\n")[:-1]]
    return msgspec.convert(found, tuple[Scene, ...])


def print_report(ledger: Path, out: Console, by: str) -> None:
    """The output of `tokentee report --by …` for the same ledger."""
    with disposing(open_engine(f"sqlite:///{ledger}")) as engine:
        found = queries.report(engine, by.split(","), Scope())
    out.print()
    print_table(report_tables.screen(found), out, f"tokentee report --by {by}")
    for note in report_tables.notes(found):
        out.print(wrapped(note, out.width), markup=False)


async def play_all(scenes: Sequence[Scene], ledger: Path) -> dict[str, bytes]:
    """The body that each scene's client received, by title. Afterwards the ledger is complete."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    progress = Console(stderr=True, highlight=False)
    providers = dict.fromkeys(scene.provider for scene in scenes)
    async with contextlib.AsyncExitStack() as running:
        by_title = {scene.title: scene for scene in scenes}
        assert len(by_title) == len(scenes)
        upstreams = {
            provider: await running.enter_async_context(traffic.serving(by_title))
            for provider in providers
        }
        progress.print("Starting mitmdump -s addon/tee.py in front of local systems …")
        confdir = running.enter_context(tempfile.TemporaryDirectory(prefix="tokentee-mitmproxy-"))
        ports = await running.enter_async_context(
            traffic.recording(ledger, Path(confdir), upstreams)
        )
        bodies = {}
        for provider in providers:
            own = [scene for scene in scenes if scene.provider == provider]
            progress.print(f"Sending {len(own)} requests to {provider} …")
            for scene in own:
                bodies[scene.title] = await traffic.play(scene, ports[provider])
        progress.print("Stopping mitmdump and reading the ledger …\n")
    return bodies


def mistakes_in(
    scenes: Sequence[Scene], bodies: Mapping[str, bytes], found: Sequence[show.Row]
) -> list[str]:
    """The differences of ledger and clients from upstream, as lines."""
    mistakes = []
    by_scene: dict[str, list[show.Row]] = {}
    for row in found:
        by_scene.setdefault(row.session_id, []).append(row)
    for scene in scenes:
        if bodies[scene.title] != scene.client_body:
            mistakes.append(f"{scene.title}: the client did not get what upstream sent")
        match by_scene.get(scene.title, []):
            case [row]:
                mistakes += [
                    f"{scene.title}: {difference}"
                    for difference in show.differences(scene.figures, row.figures)
                ]
                if row.provider != scene.provider:
                    mistakes.append(f"{scene.title}: recorded as {row.provider}")
            case several:
                mistakes.append(f"{scene.title}: {len(several)} rows instead of one")
    return mistakes
