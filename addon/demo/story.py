"""Wiring. `tokentee demo`: sends the recorded calls of `demo.jsonl` through a real mitmdump to an
upstream that serves their answers, compares the ledger with what was sent, and shows it."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from rich.console import Console

from addon.metering.messages import End
from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded
from addon.recordings.serving import ServedAnswers, serve
from addon.run.leftovers import run_folder
from ledger.commands.output import console
from ledger.figures import queries
from ledger.figures.request_list import ListedRequest, latest
from ledger.model.errors import LedgerError
from ledger.reports import report_tables, requests_text
from ledger.reports.layout import wrapped
from ledger.reports.render import print_table
from ledger.store.db import disposing, open_engine
from ledger.store.scope import Scope, snapshot
from ledger.text.hints import as_typed

CALLS = tuple(
    item
    for item in read(Path(__file__).with_name("demo.jsonl"), url=None)
    if isinstance(item, Recorded)
)
KNOWN: Mapping[str, tuple[str | int | None, ...]] = {
    "streams, asks for no usage": ("complete", "reported", "metered", 1_850, None, 212),
    "repeats a long prompt": ("complete", "reported", "metered", 12_216, 11_904, 268),
    "disconnects in an answer": ("client_left", "estimated", "metered", None, None, None),
    "is told to wait": ("http_error", "none", "metered", None, None, None),
    "uses a flat-rate plan": ("complete", "reported", "plan", 20_575, 20_480, 403),
}
"""Call -> what upstream's bytes state: outcome, source of the usage, billing, input, cached input,
output."""
SPEED = 4.0
START_SECONDS_MAX, STOP_SECONDS_MAX, ANSWER_SECONDS_MAX = 60, 20, 30
"""A start takes 2-4 s, and more on a machine that has just installed everything."""
USAGE_EVENT = re.compile(rb'data: [^\n]*"choices":\[\],"usage":[^\n]*\n\n')


def demo() -> int:
    """Play it; the exit code: 0 if every client got its bytes and the ledger every figure."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Everything is in one folder of its own; the user can look into the ledger in it.
    ledger = Path(tempfile.mkdtemp(prefix="tokentee-demo-")) / "ledger.db"
    progress = Console(stderr=True, highlight=False)
    try:
        with contextlib.ExitStack() as running:
            upstreams = running.enter_context(serving())
            progress.print("Starting mitmdump -s addon/tee.py in front of a recorded upstream …")
            confdir = running.enter_context(run_folder()).path
            ports = running.enter_context(recording(ledger, confdir, upstreams))
            progress.print(f"Sending {len(CALLS)} requests …")
            bodies = {call.name: send(call, ports[call.origin.host]) for call in CALLS}
            progress.print("Stopping mitmdump and reading the ledger …\n")
        return 1 if show(ledger, bodies) else 0
    except BaseException:
        shutil.rmtree(ledger.parent, ignore_errors=True)
        raise


@contextlib.contextmanager
def serving() -> Iterator[dict[str, int]]:
    """Serve the recorded answers; yields a port for each host of theirs."""
    ports: dict[str, int] = {}
    loop, is_up, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def run() -> None:
        answers = ServedAnswers(CALLS, in_turn=True)
        for host in dict.fromkeys(call.origin.host for call in CALLS):
            server = await serve(answers, "127.0.0.1", 0, speed=SPEED)
            ports[host] = server.sockets[0].getsockname()[1]
        is_up.set()
        await ended.wait()

    # A client that left is still being answered; asyncio would log that this is cancelled.
    loop.set_exception_handler(lambda *_: None)

    def run_in_thread() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # ends what is still open, too
            runner.run(run())

    thread = threading.Thread(target=run_in_thread, daemon=True)
    thread.start()
    is_up.wait()
    try:
        yield ports
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(STOP_SECONDS_MAX)


@contextlib.contextmanager
def recording(ledger: Path, conf: Path, upstreams: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Run mitmdump in front of each upstream; yields the port to send to, by host.
    At the end of the block mitmdump has ended and the ledger is complete."""
    with contextlib.ExitStack() as held:  # all at once, or one could be chosen twice
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in upstreams]
        ports = {host: at.getsockname()[1] for host, at in zip(upstreams, sockets, strict=True)}
    # The mitmdump of this environment, without its script's path.
    start = "from mitmproxy.tools.main import mitmdump; mitmdump()"
    words = [sys.executable, "-c", start, "-s", str(Path(__file__).parent.parent / "tee.py")]
    hosts = []
    for host, port in upstreams.items():
        words += ["--mode", f"reverse:http://127.0.0.1:{port}@127.0.0.1:{ports[host]}"]
        hosts.append(f"127.0.0.1:{port}={host.split('.')[1]}")
    options = {"confdir": conf, "ledger_url": f"sqlite:///{ledger}", "tee_hosts": ",".join(hosts)}
    for name, value in {**options, "flow_detail": 0, "termlog_verbosity": "info"}.items():
        words += ["--set", f"{name}={value}"]
    # A separate secret: the user's secret is for the user's ledgers.
    secret = {"TOKENTEE_SECRET_FILE": str(ledger.with_name("secret"))}
    log = ledger.with_name("mitmdump.log")
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  # our own words
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"} | secret,
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while (text := log.read_text(errors="replace")).count("listening at") < len(ports) or (
            "tokentee: ledger " not in text
        ):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LedgerError(f"the demo's mitmdump did not start. Its log:\n{text[-4000:]}")
            time.sleep(0.05)
        yield ports
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()


def send(call: Recorded, port: int) -> bytes:
    """Send a call as its client did; the body that the client received, complete or not."""
    headers = {name.decode(): value.decode() for name, value in call.request_headers}
    headers |= {"x-tokentee-session": call.name, "x-tokentee-tag": "team=search"}
    body = call.request_body if call.client_body is None else call.client_body
    count = len(call.response_body) if call.end is End.CLIENT_LEFT else None
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        with contextlib.closing(connection):
            connection.request(call.method, call.path, body, headers)
            with connection.getresponse() as response:
                return response.read(count)
    except (OSError, HTTPException) as failure:  # Ctrl-C in a terminal ends mitmdump, too
        raise LedgerError(f"the demo's mitmdump did not answer: {failure}") from failure


def mistakes_in(bodies: Mapping[str, bytes], rows: Sequence[ListedRequest]) -> list[str]:
    """The differences of ledger and clients from what was recorded, as lines."""
    found = defaultdict(list)
    for row in rows:
        tokens = (row.input_tokens, row.cache_read_tokens, row.output_tokens)
        found[row.session_id].append((row.outcome, row.usage_source, row.billing, *tokens))
    mistakes = []
    for call in CALLS:
        if bodies[call.name] != USAGE_EVENT.sub(b"", call.response_body):
            mistakes.append(f"{call.name}: the client did not get what upstream sent")
        if found[call.name] != [KNOWN[call.name]]:
            mistakes.append(f"{call.name}: {found[call.name]} instead of {KNOWN[call.name]}")
    return mistakes


def show(ledger: Path, bodies: Mapping[str, bytes]) -> list[str]:
    """Print the story, the report and the next steps; returns what is wrong, each as a line."""
    out = console()
    url = f"sqlite:///{ledger}"
    with disposing(open_engine(url)) as engine:
        with snapshot(engine) as connection:
            rows = latest(connection, Scope(), limit=2 * len(CALLS)).requests
        report = queries.report(engine, ["tag:team", "model"], Scope())
    print_table(requests_text.table(rows), out, "tokentee requests")
    story = (
        "An agent of the team `search` made five calls through a real recording proxy. The first "
        f"{', the next '.join(KNOWN)}. The first answer carried no usage, as its client had asked "
        "for none; the ledger has it all the same, and the client got what it would have got "
        "without us, byte for byte."
    )
    out.print("\n" + wrapped(story, out.width) + "\n", markup=False)
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
    mistakes = mistakes_in(bodies, rows)
    for mistake in mistakes:
        out.print(f"WRONG  {mistake}", markup=False)
    return mistakes
