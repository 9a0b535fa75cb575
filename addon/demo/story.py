"""Wiring. `tokentee demo`: plays scenes through a real mitmdump, and compares ledger and upstream.

By default an agent, its team, and the bill, on one screen; or five gateways (`seeds.toml`).
"""

import asyncio
import contextlib
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from addon.demo import show, traffic
from addon.demo.scene import DONE, ExpectedRow, Scene, SceneAnswer, document, event
from addon.demo.show import Row
from ledger.figures import queries
from ledger.reports import report_tables
from ledger.reports.layout import Column, Table, wrapped
from ledger.reports.render import print_table
from ledger.store.db import disposing, open_engine
from ledger.store.scope import Scope

GPT, CLAUDE = "gpt-4.1", "claude-sonnet-4-5"
LIMITS = {
    "anthropic-ratelimit-unified-status": "allowed",
    "anthropic-ratelimit-unified-5h-utilization": "0.42",
    "anthropic-ratelimit-unified-5h-reset": "4102444800",
}
SAID = (
    ("streams, asks for no usage", "usage, asked for on its way and taken out again"),
    ("repeats a long prompt", "what came from the prompt cache"),
    ("leaves amid an answer", "an estimate, in no total"),
    ("is told to wait", "the error, and the wait"),
    ("goes on with a flat plan", "list value, 42% of 5 h used"),
)


def scenes() -> tuple[Scene, ...]:
    """The agent's calls, in their order."""
    usage = {"prompt_tokens": 1_850, "completion_tokens": 212, "total_tokens": 2_062}
    words = ("The", " invoice", " is", " 14", " days", " late.")
    refusal = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
    return (
        _chat(
            SAID[0][0],
            SceneAnswer(
                pieces=(*_streamed("chatcmpl-one", *words, finish="stop"), DONE),
                pieces_when_asked=(
                    *_streamed("chatcmpl-one", *words, finish="stop"),
                    event(_chunk("chatcmpl-one", {}) | {"choices": [], "usage": usage}),
                    DONE,
                ),
            ),
            response_id="chatcmpl-one",
            response_model=GPT,
            finish_reason="stop",
            input_tokens=1_850,
            output_tokens=212,
            usage_injected=True,
            usage_stripped=True,
        ),
        _messages(SAID[1][0], "msg_two", input_tokens=312, cached=11_904, output=268),
        _chat(
            SAID[2][0],
            SceneAnswer(
                pieces=_streamed("chatcmpl-left", "Dear", " Globex,"), waits_for_leave=True
            ),
            response_id="chatcmpl-left",
            response_model=GPT,
            usage_source="estimated",
            outcome="client_left",
            usage_injected=True,
        ),
        _chat(
            SAID[3][0],
            replace(document(refusal, status=429), headers={"retry-after": "20"}),
            usage_source="none",
            outcome="http_error",
            error_code="rate_limit_exceeded",
            error_message="Rate limit reached",
            usage_injected=True,
        ),
        replace(
            _messages(
                SAID[4][0], "msg_five", input_tokens=95, cached=20_480, output=403, limits=LIMITS
            ),
            sdk="claude-plan",
        ),
    )


def _chat(name: str, answer: SceneAnswer, **figures: Any) -> Scene:
    """A streamed chat completion that asks for no usage; `figures` are expected."""
    messages = [{"role": "user", "content": "Hi"}]
    return Scene(
        name=name,
        provider="openai",
        path="/v1/chat/completions",
        sdk="openai",
        body={"messages": messages, "model": GPT, "stream": True},
        answer=answer,
        figures=ExpectedRow(request_model=GPT, **figures),
    )


def _chunk(response_id: str, delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": response_id,
        "object": "chat.completion.chunk",
        "created": 1_716_825_600,
        "model": GPT,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _streamed(response_id: str, *words: str, finish: str | None = None) -> tuple[str, ...]:
    """The chunks of a stream: the role, the words, and the finish if there is one."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    chunks = [_chunk(response_id, delta) for delta in deltas]
    return tuple(map(event, [*chunks, *([_chunk(response_id, {}, finish)] if finish else [])]))


def _messages(
    name: str,
    response_id: str,
    *,
    input_tokens: int,
    cached: int,
    output: int,
    limits: Mapping[str, str] | None = None,
) -> Scene:
    """A call of Anthropic's API, which counts what comes from the cache beside the input."""
    usage = {"input_tokens": input_tokens, "cache_read_input_tokens": cached, "output_tokens": 1}
    message = {"id": response_id, "type": "message", "role": "assistant", "model": CLAUDE}
    text: dict[str, Any] = {"type": "text_delta", "text": "Paid on 14 November."}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": text},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": output},
        },
        {"type": "message_stop"},
    ]
    return Scene(
        name=name,
        provider="anthropic",
        path="/v1/messages",
        sdk="anthropic",
        body={"model": CLAUDE, "max_tokens": 500, "stream": True,
              "messages": [{"role": "user", "content": "Is it paid?"}]},
        answer=SceneAnswer(
            pieces=tuple(event(each, each["type"]) for each in events), headers=limits or {}
        ),
        figures=ExpectedRow(
            response_id=response_id,
            request_model=CLAUDE,
            response_model=CLAUDE,
            input_tokens=input_tokens + cached,
            cache_read_tokens=cached,
            output_tokens=output,
            finish_reason="end_turn",
        ),
    )  # fmt: skip


def story(ledger: Path) -> int:
    """Play it; the exit code: 0 if every client got its bytes and the ledger every figure."""
    played = scenes()
    bodies = asyncio.run(play_all(played, ledger))
    found = show.read(ledger)
    out = show.console(width=100)
    out.print(
        "An agent of the team `search` made five calls, through a real recording proxy, to fake "
        "providers on this machine.\n"
    )
    print_table(_table(played, bodies, found), out)
    edited = sum(row.figures.usage_stripped for row in found)
    note = (
        "The first answer carried no usage, as its client had asked for none; the ledger has it "
        f"all the same. {edited} answer was edited for that, and its client got what it would "
        "have got without us, byte for byte."
    )
    out.print(wrapped(note, out.width), markup=False)
    print_report(ledger, out, "tag:team,model")
    url = f"sqlite:///{ledger}"
    out.print(f"\nLook into it:\n  tokentee serve --open --ledger {url}", soft_wrap=True)
    out.print(f"  tokentee requests --ledger {url}", soft_wrap=True)
    out.print(
        "Now for your agent:\n  tokentee run -- claude\n  tokentee report --since today\n"
        "  tokentee limits"
    )
    return 0 if _is_right(played, bodies, found, out) else 1


def _table(played: Sequence[Scene], bodies: Mapping[str, bytes], found: Sequence[Row]) -> Table:
    return Table(
        columns=(
            Column(name="agent", heading="The agent …", is_number=False, wraps=True),
            Column(name="client", heading="It got", is_number=False, wraps=True),
            Column(name="input", heading="Input"),
            Column(name="output", heading="Output"),
            Column(name="cost", heading="Cost"),
            Column(name="ledger", heading="What the ledger knows", is_number=False, wraps=True),
        ),
        rows=tuple(
            (one.name, _got(one, bodies[one.title]), *show.tokens(row), show.cost(row), known)
            for one, (_, known) in zip(played, SAID, strict=True)
            for row in found
            if row.session_id == one.title
        ),
    )


def _got(one: Scene, body: bytes) -> str:
    if one.answer.status != 200:
        return f"HTTP {one.answer.status}"
    if body != one.client_body:
        return "other bytes"
    return f"{len(body):,} bytes, {'then it left' if one.answer.waits_for_leave else 'as sent'}"


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
    played = seed_scenes()
    bodies = asyncio.run(play_all(played, ledger))
    found = show.read(ledger)
    out = show.console()
    print_table(show.requests(found), out)
    for note in show.notes(found):
        out.print(wrapped(note, out.width), markup=False)
    print_report(ledger, out, "provider")
    out.print(f"\nThe ledger: {ledger}\nTwo questions to ask it:")
    for query in show.queries(ledger):
        out.print(f"  {query}", soft_wrap=True, markup=False)
    if not _is_right(played, bodies, found, out):
        return 1
    out.print(f"\nAll {len(played)} requests stand in the ledger as upstream answered them.")
    return 0


def _is_right(
    played: Sequence[Scene], bodies: Mapping[str, bytes], found: Sequence[Row], out: Console
) -> bool:
    """Whether ledger and clients have what upstream sent; each difference is printed."""
    wrong = mistakes_in(played, bodies, found)
    for mistake in wrong:
        out.print(f"WRONG  {mistake}", markup=False)
    return not wrong


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
    scenes: Sequence[Scene], bodies: Mapping[str, bytes], found: Sequence[Row]
) -> list[str]:
    """The differences of ledger and clients from upstream, as lines."""
    mistakes = []
    by_scene: dict[str, list[Row]] = {}
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
