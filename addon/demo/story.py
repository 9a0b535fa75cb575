"""Wiring. `tokentee demo`: an agent, its team, and the bill, on one screen."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from addon.demo import play, show
from addon.demo.scene import DONE, ExpectedRow, Scene, SceneAnswer, document, event
from addon.demo.show import Row
from ledger.reports.layout import Column, Table, wrapped
from ledger.reports.render import print_table

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
    bodies = asyncio.run(play.play_all(played, ledger))
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
    play.print_report(ledger, out, "tag:team,model")
    url = f"sqlite:///{ledger}"
    out.print(f"\nLook into it:\n  tokentee serve --open --ledger {url}", soft_wrap=True)
    out.print(f"  tokentee requests --ledger {url}", soft_wrap=True)
    out.print(
        "Now for your agent:\n  tokentee run -- claude\n  tokentee report --since today\n"
        "  tokentee limits"
    )
    wrong = play.mistakes_in(played, bodies, found)
    for mistake in wrong:
        out.print(f"WRONG  {mistake}", markup=False)
    return 1 if wrong else 0


def _table(played: Sequence[Scene], bodies: Mapping[str, bytes], found: Sequence[Row]) -> Table:
    columns = [
        Column(name=name, heading=heading, is_number=is_number, wraps=wraps)
        for name, heading, is_number, wraps in (
            ("agent", "The agent …", False, True),
            ("client", "It got", False, True),
            ("input", "Input", True, False),
            ("output", "Output", True, False),
            ("cost", "Cost", True, False),
            ("ledger", "What the ledger knows", False, True),
        )
    ]
    return Table(
        columns=tuple(columns),
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
