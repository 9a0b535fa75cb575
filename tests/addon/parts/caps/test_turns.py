"""What an earlier turn says of the next: it is never less than what the next one takes."""

import copy
import hashlib
import json
import random
from typing import Any

import orjson
from msgspec.structs import replace

from addon.dialects import routes
from addon.framing.long_json import without_pauses
from addon.metering.segments import read_in_steps
from addon.parts.caps import turns as module
from addon.parts.caps.bound import ADDED_TOKENS_MAX, tokens_of
from addon.parts.caps.limits import Limits, ModelLimits, limits_of_model, read_limits
from addon.parts.caps.turns import Turns
from ledger.model.usage import Usage
from tests.ledger.written import opened
from tests.named import for_each

CHAT = routes.DIALECTS["openai.chat"]
MESSAGES = routes.DIALECTS["anthropic.messages"]
RESPONSES = routes.DIALECTS["openai.responses"]
WINDOW = 1_000_000
PICTURE = {"type": "image", "source": {"type": "base64", "data": "A" * 40_000}}


def said(dialect: Any, body: dict[str, Any]) -> Limits:
    data = json.dumps(body, ensure_ascii=False).encode()
    chat = without_pauses(read_in_steps(data, b"secret"))
    return read_limits(dialect, body, data, chat.parts)


def request(model: str = "claude-sonnet-4-6", provider: str = "anthropic", **more: Any) -> Any:
    return opened("e", request_model=model, provider=provider, **more)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def input_after(first: dict[str, Any], second: dict[str, Any], taken: int = 1_000) -> int | None:
    turns = Turns()
    usage = Usage(input_tokens=taken, output_tokens=50)
    turns.add(request(), usage, said(MESSAGES, first).turn)
    return turns.input_of(request(), said(MESSAGES, second))


BASE: dict[str, Any] = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "s" * 500}],
    "tools": [{"name": "a", "input_schema": {}}],
    "messages": [user("u" * 5_000)],
}
NEXT = {**BASE, "messages": [*BASE["messages"], assistant("a" * 10), user("b" * 20)]}


def test_what_is_new_counts_its_bytes():
    assert input_after(BASE, NEXT) == 1_000 + 30 + 2 * 64
    assert input_after(BASE, BASE) == 1_000


def test_breakpoints_move_and_a_note_in_the_system_prompt_changes():
    marked = copy.deepcopy(NEXT)
    marked["messages"][-1]["content"] = [
        {"type": "text", "text": "b" * 20, "cache_control": {"type": "ephemeral"}}
    ]
    marked["system"] = [{"type": "text", "text": "t" * 300}, {"type": "text", "text": "more"}]
    assert input_after(BASE, marked) == 1_000 + 30 + 2 * 64 + 304 + 2 * 64


@for_each(
    "change",
    [
        {"messages": [user("u" * 4_999), assistant("a")]},
        {"messages": []},
        {"tool_choice": {"type": "any"}},
        {"thinking": {"type": "enabled"}},
        {"messages": [{**user("u" * 5_000), "reasoning_content": "hidden"}]},
        {"messages": [{**user("u" * 5_000), "parts": ["hidden"]}]},
        {"messages": [user({"text": "u"}), user("u" * 5_000)]},
        {"messages": [{**user("u" * 5_000), "tool_calls": {"a": 1}}]},
        {"messages": [user([{"type": "image", "source": {"type": "url", "url": "https://x/"}}])]},
        {"truncation": "auto"},
        {"metadata": json.loads("[" * 260 + "]" * 260)},
    ],
)
def test_whatever_else_differs_bounds_nothing(change):
    assert input_after(BASE, {**BASE, **change}) is None
    assert input_after({**BASE, **change}, BASE) is None


def test_a_member_that_says_nothing_changes_nothing():
    said_more = {**BASE, "messages": [{**user("u" * 5_000), "refusal": None}]}
    assert input_after(said_more, BASE) == 1_000


def test_a_new_picture_counts_its_maximum_and_one_that_was_there_nothing():
    with_one = {**BASE, "messages": [user([PICTURE])]}
    with_two = {**BASE, "messages": [user([PICTURE]), assistant("a"), user([PICTURE, PICTURE])]}
    found = input_after(with_one, with_two)
    assert found is not None
    assert 0 < found - (1_000 + 1 + 3 * 64 + 2 * 4_784) < 2 * 100
    assert said(MESSAGES, with_one).input_bytes < 1_000


@for_each(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}},
        {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 40_000},
        {"image": {"format": "png", "source": {"bytes": "A" * 40_000}}},
    ],
)
def test_the_bytes_of_a_picture_are_no_text(part):
    assert said(CHAT, {"messages": [user([part])]}).input_bytes < 200
    assert said(CHAT, {"messages": [user([{"type": "image", "source": {"data": 1}}])]}).turn is None


@for_each(
    "provider, more, is_remembered",
    [
        ("anthropic", {}, True),
        ("ollama", {}, False),
        ("anthropic", {"input_tokens": None}, False),
        ("anthropic", {"output_tokens": None}, False),
        ("anthropic", {"tool_units": {"web_searches": 1}}, False),
    ],
)
def test_only_exact_figures_are_remembered(provider, more, is_remembered):
    turns, limits, exchange = Turns(), said(MESSAGES, BASE), request(provider=provider)
    turns.add(exchange, replace(Usage(input_tokens=10, output_tokens=1), **more), limits.turn)
    assert (turns.input_of(exchange, limits) is not None) == is_remembered
    assert turns.input_of(exchange, said(MESSAGES, {"model": "m", "messages": []})) is None


def test_a_response_that_the_provider_keeps():
    turns = Turns()
    exchange = request("gpt-5", "openai", response_id="resp_1")
    turns.add(exchange, Usage(input_tokens=1_000, output_tokens=200), None)
    body: dict[str, Any] = {"model": "gpt-5", "input": "Hi", "previous_response_id": "resp_1"}
    limits = said(RESPONSES, body)
    assert turns.input_of(exchange, limits) == 1_200 + limits.input_bytes
    other = said(RESPONSES, {**body, "previous_response_id": "resp_2"})
    assert turns.input_of(exchange, other) is None
    for change in ({"conversation": "c"}, {"truncation": "auto"}):
        assert said(RESPONSES, {**body, **change}).response_before is None
    model = limits_of_model("gpt-5")
    found = turns.input_of(exchange, limits)
    assert tokens_of(limits, model, provider="openai", by_turn=found)[0] < 10_000
    assert tokens_of(other, model, provider="openai")[0] == model.context


def test_reasoning_that_the_provider_keeps_took_no_more_than_the_answers():
    first = {"model": "gpt-5", "input": [user("Hi")]}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    second = {"model": "gpt-5", "input": [user("Hi"), reasoning, user("Go on")]}
    exchange = request("gpt-5", "openai")
    turns = Turns()
    limits = said(RESPONSES, second)
    assert not limits.is_whole
    turns.add(exchange, Usage(input_tokens=10, output_tokens=3_000), said(RESPONSES, first).turn)
    found = turns.input_of(exchange, limits)
    assert found is not None
    assert 3_010 < found < 3_010 + 300
    shown = {**reasoning, "encrypted_content": "x" * 100}
    assert said(RESPONSES, {"model": "gpt-5", "input": [user("Hi"), shown]}).is_whole


@for_each(
    "item", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}], ids=["typed", "bare"]
)
def test_an_item_that_the_provider_keeps_is_not_in_the_request(item):
    limits = said(RESPONSES, {"model": "gpt-5", "input": [user("Hi"), item]})
    assert (limits.is_whole, limits.turn) == (False, None)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "CONVERSATIONS_MAX", 3)
    turns, usage = Turns(), Usage(input_tokens=10, output_tokens=1)
    bodies = [{**BASE, "messages": [user(str(number))]} for number in range(5)]
    for body in bodies:
        turns.add(request(), usage, said(MESSAGES, body).turn)
    known = [turns.input_of(request(), said(MESSAGES, body)) for body in bodies]
    assert known == [None, None, 10, 10, 10]


def test_a_model_of_an_unknown_window_may_be_any():
    limits = said(MESSAGES, BASE)
    found = tokens_of(limits, ModelLimits(output=10), provider="anthropic", by_turn=5)
    assert found[0] == limits.input_bytes + ADDED_TOKENS_MAX


# Conversations of many turns: whatever a client changes, and however a provider counts.


def tokens_in(part: Any, seed: int) -> int:
    """So many tokens as a provider may count for a part: at most one a byte, by its content."""
    data = part.encode() if isinstance(part, str) else orjson.dumps(part)
    share = hashlib.blake2b(data + bytes([seed]), digest_size=1).digest()[0]
    return len(data) * (share + 1) // 256 if share % 3 else len(data)


def taken_by(body: dict[str, Any], seed: int) -> int:
    """A provider that leaves thinking out unless it is asked for, and adds to tools."""
    total = 300 if body.get("tools") else 0
    total += 30 * len(body["messages"])
    total += {"any": 340, "auto": 0}[body.get("tool_choice", {"type": "auto"})["type"]]
    total += sum(tokens_in(tool, seed) for tool in body.get("tools", ()))
    total += sum(tokens_in(part["text"], seed) for part in body["system"])
    for message in body["messages"]:
        total += tokens_in(message.get("reasoning_content", ""), seed)
        content = message["content"]
        for part in [content] if isinstance(content, str) else content:
            text = part if isinstance(part, str) else part.get("text", part.get("thinking"))
            is_left_out = isinstance(part, dict) and "thinking" in part and "thinking" not in body
            total += 4_784 if text is None else 0 if is_left_out else tokens_in(text, seed)
    return total


def talk(seed: int, dialect: Any) -> tuple[int, int]:
    """One conversation; how many of its requests there were, and were bounded by a turn."""
    drawn = random.Random(seed)
    turns, bounded = Turns(), 0

    def text() -> str:
        return "".join(drawn.choices('ab\n"\\é漢\x01 ', k=drawn.choice((1, 60, 6_000))))

    def message() -> dict[str, Any]:
        kind = drawn.random()
        if kind < 0.3:
            return user(text())
        if kind < 0.5:
            return user([{"type": "text", "text": text()}, {"type": "text", "text": text()}])
        if kind < 0.6:
            return user([PICTURE, text()])
        if kind < 0.8:
            return assistant([{"type": "thinking", "thinking": text()}])
        return assistant(text())

    body: dict[str, Any] = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 100,
        "system": [{"type": "text", "text": text()}],
        "messages": [message()],
    }
    length = drawn.randint(2, 12)
    for _ in range(length):
        limits = said(dialect, body)
        exchange = request()
        found = turns.input_of(exchange, limits)
        bounded += found is not None
        taken = taken_by(body, seed)
        bound, _, why = tokens_of(
            limits, ModelLimits(WINDOW, 100), provider="anthropic", by_turn=found
        )
        assert not why
        assert taken <= bound, (seed, body)
        if drawn.random() < 0.9:
            turns.add(exchange, Usage(input_tokens=taken, output_tokens=10), limits.turn)
        body = copy.deepcopy(body)
        messages = body["messages"]
        for _ in range(drawn.randint(0, 3)):
            messages.append(message())
        change = drawn.random()
        if change < 0.05:
            body["system"][0]["text"] = text()
        elif change < 0.1:
            body["system"].insert(0, {"type": "text", "text": text()})
        elif change < 0.15:
            messages[drawn.randrange(len(messages))] = message()
        elif change < 0.2:
            messages[drawn.randrange(len(messages))]["reasoning_content"] = text()
        elif change < 0.25:
            del messages[drawn.randrange(len(messages)) :]
            messages.append(message())
        elif change < 0.3:
            body["tools"] = [{"name": "a", "description": text(), "input_schema": {}}]
        elif change < 0.35:
            body["tool_choice"] = {"type": drawn.choice(("any", "auto"))}
        elif change < 0.4:
            body["thinking"] = {"type": "enabled"}
        elif change < 0.45:
            body.pop("thinking", None)
    return length, bounded


@for_each("dialect", [MESSAGES, CHAT], ids=lambda dialect: dialect.name)
def test_no_request_of_a_conversation_takes_more_than_its_bound(dialect):
    counts = [talk(seed, dialect) for seed in range(60)]
    requests, bounded = map(sum, zip(*counts, strict=True))
    assert bounded > requests * 0.4
