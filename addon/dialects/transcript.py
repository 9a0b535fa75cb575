"""Pure. An answer assembled for people: its text, its reasoning, its tool calls.

Metering does not use it: it reads the few keys that vendors use for generated text, and leaves out
the rest. Never raises on any bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addon.dialects.counts import lookup, objects_at
from addon.framing import json_values
from addon.framing.choice import framing_of

TEXT_LENGTH_MAX = 200_000
"""Characters shown of one answer: some 50 000 tokens."""
CALLS_MAX = 100


@dataclass(slots=True)
class ToolCall:
    """One tool that the model calls."""

    name: str = ""
    arguments: str = ""


class Transcript:
    """One answer."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._length = 0
        self._calls: dict[str, ToolCall] = {}
        self.is_cut = False
        """The answer had more text than is kept."""

    @property
    def text(self) -> str:
        """What the model answered."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """What it said of its reasoning."""
        return "".join(self._reasoning)

    @property
    def calls(self) -> list[ToolCall]:
        """The tools that it called."""
        return list(self._calls.values())

    def read(self, event: str, frame: Mapping[str, Any]) -> None:
        """Add what one frame or document has."""
        kind = _text(frame.get("type")) or event
        for choice in objects_at(frame, "choices"):
            self._message(_object(choice.get("delta")) or _object(choice.get("message")), choice)
            self._add(choice.get("text"))
        # OpenAI's Responses, streamed and whole.
        key = ("item", frame.get("output_index"))
        if kind == "response.output_text.delta":
            self._add(frame.get("delta"))
        elif kind.startswith("response.reasoning") and kind.endswith(".delta"):
            self._add(frame.get("delta"), is_reasoning=True)
        elif kind == "response.output_item.added":
            item = _object(frame.get("item"))
            if _text(item.get("type")) in ("function_call", "custom_tool_call"):
                self._call(key, item.get("name"))
        elif kind.startswith("response.") and kind.endswith(
            ("function_call_arguments.delta", "custom_tool_call_input.delta")
        ):
            self._call(key, None, frame.get("delta"))
        for item in objects_at(frame, "output"):
            if item.get("type") == "function_call":
                self._call(("item", len(self._calls)), item.get("name"), item.get("arguments"))
            for part in objects_at(item, "content"):
                self._add(part.get("text"))
            for part in objects_at(item, "summary"):
                self._add(part.get("text"), is_reasoning=True)
        for candidate in objects_at(frame, "candidates"):  # Gemini
            for part in objects_at(candidate.get("content"), "parts"):
                self._add(part.get("text"), is_reasoning=part.get("thought") is True)
                if call := _object(part.get("functionCall")):
                    self._call(("part", len(self._calls)), call.get("name"), call.get("args"))
        self._anthropic(kind, frame)
        self._bedrock(kind, frame)
        # Cohere.
        if kind == "content-delta":
            content = _object(lookup(frame, "delta.message.content"))
            self._add(content.get("text"))
            self._add(content.get("thinking"), is_reasoning=True)
        elif frame.get("event_type") == "text-generation":
            self._add(frame.get("text"))
        elif "finish_reason" in frame and isinstance(frame.get("text"), str) and not kind:
            self._add(frame["text"])
        # Ollama, and Cohere's whole answers, whose `message` holds parts.
        message = _object(frame.get("message"))
        if message and "choices" not in frame and frame.get("type") != "message_start":
            self._message(message, {"index": 0})
        if "done" in frame:
            self._add(frame.get("response"))

    def _add(self, value: object, *, is_reasoning: bool = False) -> None:
        piece = _text(value)
        room = TEXT_LENGTH_MAX - self._length
        if len(piece) > room:
            self.is_cut = True
            piece = piece[:room]
        self._length += len(piece)
        (self._reasoning if is_reasoning else self._text).append(piece)

    def _call(self, key: object, name: object = None, arguments: object = None) -> None:
        text = str(key)  # numbers of the wire may be anything
        call = self._calls.get(text)
        if call is None:
            if len(self._calls) >= CALLS_MAX:
                self.is_cut = True
                return
            call = self._calls[text] = ToolCall()
        call.name = call.name or _text(name)
        given = "" if arguments is None else arguments
        if not isinstance(given, str):
            given = json_values.dumps(given)
        room = max(0, TEXT_LENGTH_MAX - self._length)
        self.is_cut |= len(given) > room
        self._length += min(len(given), room)
        call.arguments += given[:room]

    def _message(self, message: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        """OpenAI's chat, and formats like it."""
        content = message.get("content")
        self._add(content)
        for part in objects_at(message, "content"):
            self._add(part.get("text"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        self._add(reasoning, is_reasoning=True)
        for place, call in enumerate(objects_at(message, "tool_calls")):
            function = _object(call.get("function"))
            key = ("chat", choice.get("index"), call.get("index", place))
            self._call(key, function.get("name"), function.get("arguments"))

    def _anthropic(self, kind: str, frame: Mapping[str, Any]) -> None:
        key = ("block", frame.get("index"))
        if kind == "content_block_start":
            self._block(key, _object(frame.get("content_block")), is_whole=False)
        elif kind == "content_block_delta":
            delta = _object(frame.get("delta"))
            self._add(delta.get("text"))
            self._add(delta.get("thinking"), is_reasoning=True)
            if "partial_json" in delta:
                self._call(key, None, delta["partial_json"])
        elif kind == "message":
            for place, block in enumerate(objects_at(frame, "content")):
                self._block(("block", place), block, is_whole=True)

    def _block(self, key: object, block: Mapping[str, Any], *, is_whole: bool) -> None:
        self._add(block.get("text"))
        self._add(block.get("thinking"), is_reasoning=True)
        if _text(block.get("type")) in ("tool_use", "server_tool_use"):
            self._call(key, block.get("name"), block.get("input") if is_whole else None)

    def _bedrock(self, kind: str, frame: Mapping[str, Any]) -> None:
        """Converse, streamed and whole."""
        key = ("bedrock", frame.get("contentBlockIndex"))
        if kind == "contentBlockStart":
            tool = _object(lookup(frame, "start.toolUse"))
            if tool:
                self._call(key, tool.get("name"))
        elif kind == "contentBlockDelta":
            delta = _object(frame.get("delta"))
            self._add(delta.get("text"))
            self._add(lookup(delta, "reasoningContent.text"), is_reasoning=True)
            if tool := _object(delta.get("toolUse")):
                self._call(key, None, tool.get("input"))
        message = _object(lookup(frame, "output.message"))
        for place, block in enumerate(objects_at(message, "content")):
            self._add(block.get("text"))
            if tool := _object(block.get("toolUse")):
                self._call(("bedrock", place), tool.get("name"), tool.get("input"))


def transcript_of(body: bytes, content_type: str) -> Transcript:
    """The transcript of a decoded answer."""
    transcript = Transcript()
    framing = framing_of(content_type, body, is_over=True)
    assert framing is not None  # one is chosen for every body that is over
    for run in (framing.feed(body), framing.end()):
        for block in framing.split(run) if run else ():
            frame = framing.parse(block)
            value = json_values.strict_loads(frame.data) if frame is not None else None
            for each in value if isinstance(value, list) else [value]:
                if frame is not None and isinstance(each, dict):
                    transcript.read(frame.event, each)
    return transcript


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
