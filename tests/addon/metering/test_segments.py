"""A chat request is kept as the sizes and keyed hashes of its parts, and nothing of its text."""

import base64
import random
import string
import zlib
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson
import sqlalchemy as sa
from msgspec import structs
from typer.testing import CliRunner

from addon.dialects.routes import DIALECTS
from addon.metering import segments
from addon.metering.messages import Body
from addon.metering.opening import RunRules
from addon.metering.segments import BODY_BYTES_MAX, PIECES_MAX, read_in_steps
from ledger.model.segments import (
    DAY_ASKED,
    OPERATIONS,
    SEGMENTS_MAX,
    Kind,
    Segment,
    Segments,
    SegmentType,
    pack,
    unpack,
)
from ledger.parts.sync import merging
from ledger.store import db, retention
from tests.addon.metering.opened import REQUEST, opened
from tests.app import APP
from tests.ledger.written import reading, settled, writing
from tests.named import for_each

SECRET = b"the ledger's secret"


def packed(body: object, secret: bytes = SECRET) -> str | None:
    steps = read_in_steps(body if isinstance(body, bytes) else orjson.dumps(body), secret)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value.segments


def read(body: object, secret: bytes = SECRET) -> Segments:
    text = packed(body, secret)
    assert text is not None
    found = unpack(text)
    assert found is not None
    return found


TEXT = "a question that nobody may read"
ANTHROPIC = {
    "model": "claude",
    "tools": [{"name": "grep", "input_schema": {}}, {"name": "bash", "input_schema": {}}],
    "system": [{"type": "text", "text": TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "grep", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": TEXT}]},
        {"role": "user", "content": [{"type": "image", "source": {"data": "AAAA"}}]},
    ],
}
CHAT = {
    "tools": [
        {"type": "function", "function": {"name": "grep"}},
        {"type": "function", "function": {"name": "bash"}},
    ],
    "messages": [
        {"role": "system", "content": TEXT},
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "grep"}}]},
        {"role": "tool", "content": TEXT},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
    ],
}
RESPONSES = {
    "tools": [{"type": "function", "name": "grep"}, {"type": "custom", "name": "bash"}],
    "instructions": TEXT,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": TEXT}]},
        {"type": "function_call", "name": "grep", "arguments": "{}"},
        {"type": "function_call_output", "output": TEXT},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]},
    ],
}
GEMINI = {
    "tools": [{"functionDeclarations": [{"name": "grep"}, {"name": "bash"}]}],
    "systemInstruction": {"parts": [{"text": TEXT}]},
    "contents": [
        {"role": "user", "parts": [{"text": TEXT}]},
        {"role": "model", "parts": [{"functionCall": {"name": "grep"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "grep"}}]},
        {"role": "user", "parts": [{"inlineData": {"data": "AAAA"}}]},
    ],
}
CONVERSE = {
    "toolConfig": {"tools": [{"toolSpec": {"name": "grep"}}, {"toolSpec": {"name": "bash"}}]},
    "system": [{"text": TEXT}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": TEXT}]},
        {"role": "assistant", "content": [{"toolUse": {"name": "grep"}}]},
        {"role": "user", "content": [{"toolResult": {"content": []}}]},
        {"role": "user", "content": [{"image": {"format": "png"}}]},
    ],
}
SHAPES = [ANTHROPIC, CHAT, RESPONSES, GEMINI, CONVERSE]
NAMES = ["anthropic", "chat", "responses", "gemini", "converse"]


@for_each("body", SHAPES, ids=NAMES)
def test_the_parts_of_each_wire_format(body):
    parts = read(body).parts
    assert [(each.kind, each.type) for each in parts] == [
        (Kind.TOOLS, SegmentType.TEXT),
        (Kind.TOOLS, SegmentType.TEXT),
        (Kind.SYSTEM, SegmentType.TEXT),
        (Kind.MESSAGES, SegmentType.TEXT),
        (Kind.MESSAGES, SegmentType.TOOL_CALL),
        (Kind.MESSAGES, SegmentType.TOOL_RESULT),
        (Kind.MESSAGES, SegmentType.IMAGE),
    ]
    assert [parts[at].name for at in (0, 1, 3, 4)] == ["grep", "bash", "user", "grep"]


def test_the_tools_that_codex_puts_before_its_messages():
    """Also in a namespace."""
    inner = [{"type": "function", "name": "send"}, {"type": "custom", "name": "exec"}]
    tools = [
        {"type": "function", "name": "grep"},
        {"type": "namespace", "name": "n", "tools": inner},
    ]
    more = {"type": "additional_tools", "role": "developer", "tools": tools}
    user = {"role": "user", "content": TEXT}
    parts = read({"input": [more, {"role": "developer", "content": TEXT}, user]}).parts
    assert [(each.kind, each.name) for each in parts] == [
        (Kind.TOOLS, "grep"),
        (Kind.SYSTEM, "system"),
        (Kind.TOOLS, "send"),
        (Kind.TOOLS, "exec"),
        (Kind.SYSTEM, "developer"),
        (Kind.MESSAGES, "user"),
    ]


def test_breakpoints_are_kept_apart_from_content():
    bare = {**ANTHROPIC, "system": [{"type": "text", "text": TEXT}]}
    assert [each.breakpoint for each in read(ANTHROPIC).parts] == [0, 0, 2, 0, 0, 0, 0]
    assert [each.breakpoint for each in read(CONVERSE).parts] == [0, 0, 1, 0, 0, 0, 0]
    assert read(bare).prefixes() == read(ANTHROPIC).prefixes()
    assert read({**bare, "cache_control": {"type": "ephemeral"}}).automatic == 1
    assert read({**CHAT, "prompt_cache_retention": "24h"}).automatic == DAY_ASKED
    assert read({**CHAT, "prompt_cache_retention": "in_memory"}).automatic == 0


def test_breakpoints_stand_in_the_parts_of_results_and_after_parts_of_messages():
    mark = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": TEXT}
    marked, bare = (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": content}]}]}
        for content in ([text, {**text, **mark}], [text, text])
    )
    assert [each.breakpoint for each in read(marked).parts] == [1]
    assert read(marked).prefixes() == read(bare).prefixes()
    point = {"type": "input_text", "text": TEXT, "prompt_cache_breakpoint": {"mode": "explicit"}}
    bare_point = {"type": "input_text", "text": TEXT}
    one, two = (
        read({"input": [{"role": "user", "content": [each]}]}) for each in (point, bare_point)
    )
    assert [one.parts[0].breakpoint, two.parts[0].breakpoint] == [1, 0]
    assert one.prefixes() == two.prefixes()
    point = {"cachePoint": {"type": "default"}}
    body = {**CONVERSE, "system": [point], "toolConfig": {"tools": [point]}}
    body["messages"] = [{"role": "user", "content": [{"text": TEXT}, point, {"text": TEXT}]}]
    assert [each.breakpoint for each in read(body).parts] == [1, 0]


@for_each("point, mark", [({}, 1), ({"ttl": "5m"}, 1), ({"ttl": "1h"}, 2)])
def test_a_cache_point_has_a_lifetime(point, mark):
    point = {"cachePoint": {"type": "default", **point}}
    body = {"system": [{"text": TEXT}, point], "messages": [{"role": "user", "content": [point]}]}
    assert [each.breakpoint for each in read(body).parts] == [mark]
    assert (
        read({**body, "messages": [{"role": "user", "content": "x"}]}).parts[0].breakpoint == mark
    )


@for_each("kind", ["text", "input_text", "output_text"])
def test_a_text_is_the_short_form_of_a_text_part(kind):
    """Clients write the one for the other where a breakpoint moves on."""
    part = {"type": kind, "text": TEXT, "cache_control": {"type": "ephemeral"}}

    def prefixes(text: object) -> list[bytes]:
        result = {"type": "tool_result", "tool_use_id": "1", "content": text}
        messages = [
            {"role": "system", "content": text},
            {"role": "user", "content": text},
            {"role": "tool", "tool_call_id": "1", "content": text},
            {"role": "user", "content": [result]},
        ]
        return read({"system": text, "messages": messages}).prefixes()

    assert prefixes(TEXT) == prefixes([part])
    assert prefixes(TEXT) != prefixes([{**part, "citations": []}])


def test_nested_results_are_read_without_recursion():
    for depth, is_read in ((100, True), (200, False), (500, False)):
        value = b'[{"cache_control":{},"content":' * depth + b"[]" + b"}]" * depth
        body = b'{"messages":[{"role":"user","content":' + value + b"}]}"
        assert (packed(body) is not None) is is_read
    tools = [["cache_control", 2, {"cache_control": {}}]]
    assert len(read({"tools": tools, "messages": ["x"]}).parts) == 2


def test_large_bodies_are_read_in_steps(monkeypatch):
    """The work between two pauses: passes of native code over bytes, and parts."""
    done = [0, 0]

    def counted(work, size_of):
        def do(*given):
            result = work(*given)
            done[0] += len(size_of(given, result))
            done[1] += 1
            return result

        return do

    def read(given, _):
        return given[0]

    monkeypatch.setattr(
        segments, "json_values", SimpleNamespace(strict_loads=counted(orjson.loads, read))
    )
    dumps = counted(orjson.dumps, lambda _, result: result)
    monkeypatch.setattr(segments, "orjson", SimpleNamespace(dumps=dumps))
    hashes = counted(segments._digest_of, lambda given, _: given[-1])
    monkeypatch.setattr(segments, "_digest_of", hashes)
    large = "x" * (BODY_BYTES_MAX - 1_000)
    for contents in ([large], ["x" * 20_000] * 190, ["x" * 300] * 1_900):
        body = orjson.dumps({"messages": [{"role": "user", "content": each} for each in contents]})
        turns = []
        for _ in segments.read_in_steps(body, SECRET):
            turns.append(tuple(done))
            done[:] = [0, 0]
        turns.append(tuple(done))
        done[:] = [0, 0]
        # A part that is written, and parts that are hashed and written up to the next pause.
        assert max(size for size, _ in turns) <= BODY_BYTES_MAX + 2 * segments.STEP_BYTES
        assert max(count for _, count in turns) <= 2 * segments.STEP_PIECES
        assert sum(count for _, count in turns) == len(contents) + 1


def test_a_hash_needs_the_secret():
    ours, others = read(CHAT).parts, read(CHAT, b"another").parts
    assert not {each.digest for each in ours} & {each.digest for each in others}
    assert packed(CHAT, b"") is None


def test_older_messages_are_joined_and_a_prefix_stays_the_same():
    messages = [{"role": "user", "content": f"message {at}"} for at in range(900)]
    before, after = (read({**CHAT, "messages": messages[:end]}) for end in (890, 900))
    assert len(after.parts) == SEGMENTS_MAX
    assert sum(each.type is SegmentType.JOINED for each in after.parts) == 1
    assert before.prefixes()[-1] in after.prefixes()
    assert sum(each.size for each in after.parts) >= 900 * len("message 0")


@for_each(
    "body",
    [
        b"",
        b"[]",
        b"no json",
        b'--form\r\n{"messages":[]}',
        {"model": "x"},
        {"tools": [{"name": "grep"}], "message": "x", "chat_history": []},
        {**RESPONSES, "previous_response_id": "resp_1"},
        {**RESPONSES, "conversation": {"id": "conv_1"}},
        {**GEMINI, "cachedContent": "cachedContents/1"},
        {"messages": [{"role": "user", "content": "x"}] * (PIECES_MAX + 1)},
        b'{"messages":["' + b"x" * BODY_BYTES_MAX + b'"]}',
        b'{"messages":[' + b"[{}]," * 100_000 + b"1]}",
        b'{"messages":[' + b"[{}]," * 240_000 + b"1]}",
        b'{"messages":' + b"[" * 30_000,
    ],
)
def test_other_bodies_have_no_segments(body):
    assert packed(body) is None


def test_odd_values_are_read_without_an_error():
    chance = random.Random(29)
    values: list[object] = [
        None,
        1,
        "x",
        [],
        {},
        [None],
        {"type": []},
        {"content": 3},
        [[["x"]]],
        {"name": {}},
    ]
    keys = ["tools", "system", "messages", "contents", "input", "toolConfig", "cache_control"]
    inner = ["role", "content", "type", "parts", "tool_calls", "cache_control", "function", "text"]
    for _ in range(2_000):
        item = {name: chance.choice(values) for name in chance.sample(inner, 3)}
        packed({name: chance.choice([*values, item, [item]]) for name in chance.sample(keys, 3)})


@for_each("count", range(1, 12))
def test_few_and_many_come_back_alike(count):
    parts = [
        Segment(Kind.MESSAGES, SegmentType.TEXT, "user", 900 + at, at % 3, bytes([at]) * 8)
        for at in range(count)
    ]
    text = pack(parts, automatic=1)
    assert unpack(text) == Segments(tuple(parts), 1)
    is_deflated = base64.b64decode(text)[:1] != b"\x94"
    assert is_deflated == (count > 6)  # 21 bytes a part


def test_a_packed_text_that_is_none_is_refused():
    assert unpack("no base64") is None
    assert unpack("AAAA") is None
    other = zlib.compress(msgspec.msgpack.encode((1, 0, [], b"")))
    assert unpack(base64.b64encode(other).decode()) is None


def exchange_of(body: object, rules: RunRules):
    return opened(structs.replace(REQUEST, body=Body(orjson.dumps(body))), rules).opened


def test_a_rule_keeps_them_or_not():
    kept = exchange_of(CHAT, RunRules(node="n", secret=SECRET, keeps_segments=True))
    assert kept.segments == packed(CHAT)
    assert exchange_of(CHAT, RunRules(node="n", secret=SECRET)).segments is None


def test_segments_are_shipped_and_dropped(tmp_path):
    text = packed(CHAT)
    source, target = (f"sqlite:///{tmp_path / name}.sqlite3" for name in ("one", "two"))
    exchange = structs.replace(settled("a"), segments=text)
    with writing(source) as written:
        written.ledger.settle(exchange, reading(exchange))
    merging.sync(source, target)
    for url in (source, target):
        with db.disposing(db.open_existing(url)) as engine:
            with engine.connect() as connection:
                rows = connection.execute(sa.text("SELECT exchange_id, packed FROM segments"))
                assert rows.all() == [("a", text)]
            before = exchange.opened_at
            assert retention.drop_segments_before(engine, before) == 0
            assert retention.drop_segments_before(engine, before + timedelta(seconds=1)) == 1
            assert retention.count_before(engine, before + timedelta(seconds=1)) == 1


def test_every_operation_has_segments_or_is_no_conversation():
    others = {
        *("text_completion", "embeddings", "image_generation", "audio", "text_to_speech"),
        *("moderation", "batch", "rerank", "ocr", "invoke_agent", "decision", "unknown"),
        *("video_generation", "music_generation", "agent_call"),
    }
    assert {dialect.operation for dialect in DIALECTS.values()} == others | {*OPERATIONS}


def test_no_sixteen_characters_of_a_prompt_stand_in_a_ledger(tmp_path):
    """Every wire format, with text in every place that takes some, and an answer that repeats it."""
    chance = random.Random(16)
    texts: list[str] = []

    def text(size: int = 300) -> str:
        words = ("".join(chance.choices(string.ascii_letters, k=9)) for _ in range(size // 10))
        texts.append(" ".join(words))
        return texts[-1]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(each) for each in value]
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return text() if value in (TEXT, "AAAA", "data:", "{}") else value

    paths = {
        "anthropic": "https://api.anthropic.com/v1/messages",
        "chat": "https://api.openai.com/v1/chat/completions",
        "responses": "https://api.openai.com/v1/responses",
        "gemini": "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent",
        "converse": "https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-pro-v1/converse",
    }
    lines: list[bytes] = []
    for name, shape in zip(NAMES, SHAPES, strict=True):
        body = {"model": "m-1", **filled(shape)}
        tools = body.get("tools") or body["toolConfig"]["tools"]
        tools += [{"name": text(), "description": text()}, {text(): text()}, {"type": text()}]
        body["messages" if "messages" in body else "input"] = [
            *body.get("messages", body.get("input", [])),
            {"role": text(), "content": [{"type": "tool_use", "name": text(), "input": text()}]},
            {"type": "function_call", "name": text(), "arguments": text()},
            text(),
        ]
        for answer in ({"error": {"message": f"bad: {texts[-1]}", "type": texts[-2]}}, {}):
            raw = base64.b64encode(orjson.dumps(answer)).decode()
            headers = {"content-type": "application/json", "user-agent": "claude-cli/2.0"}
            request = {"method": "POST", "url": paths[name], "headers": headers, "body": body}
            response = {"status": 400, "headers": headers, "body_b64": raw}
            row = {"name": f"{name}{len(lines)}", "request": request, "response": response}
            lines.append(orjson.dumps(row))
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(lines))
    ledger = tmp_path / "ledger.sqlite3"
    words = ["replay", str(tmp_path / "lines.jsonl"), "--ledger", str(ledger)]
    done = CliRunner().invoke(APP, words)
    assert done.exit_code == 0, done.output
    with db.disposing(db.open_existing(f"sqlite:///{ledger}")) as engine:
        with engine.connect() as connection:
            packed_rows = connection.execute(sa.text("SELECT packed FROM segments")).scalars().all()
        data = b"".join(
            path.read_bytes() for path in tmp_path.glob("ledger.sqlite3*") if path.is_file()
        )
    assert len(packed_rows) == 2 * len(SHAPES)
    assert b"openai" in data
    data += b"".join(zlib.decompress(base64.b64decode(each)) for each in packed_rows)
    windows = {one[at : at + 16].encode() for one in texts for at in range(len(one) - 15)}
    assert not [data[at : at + 16] for at in range(len(data) - 15) if data[at : at + 16] in windows]


def test_a_body_that_was_parsed_is_read_as_it_was_written():
    """The facts of a request are the same with and without segments; integers of any size, too."""
    for body in (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"user":12345678901234567890123}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"user":"u","seed":NaN}',
        orjson.dumps({"model": "m", **CHAT, "user": "u", "stream": True}),
        b'{"model":"m","messages":[' + b'{"role":"user","content":"x"},' * 50_000 + b"1]}",
    ):
        request = structs.replace(REQUEST, body=Body(body))
        found = []
        for keeps in (True, False):
            exchange = opened(request, RunRules(node="n", secret=SECRET, keeps_segments=keeps))
            found.append((exchange.asked.facts, structs.replace(exchange.opened, segments=None)))
        assert found[0] == found[1]
