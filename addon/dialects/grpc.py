"""Pure. gRPC: the fields that say id, model and usage, by their numbers in the providers' own SDKs,
and the words of its status.

A message is read into the JSON that the same provider writes over HTTP, whose dialect then reads
it. A request is read under a cap alone, and is bounded if it has no field but those that are named
here: text, the client's own tools, and what changes no price.

xAI       xai-sdk 1.21.0, `xai_sdk/proto/v6` (`chat.proto`, `usage.proto`, `sample.proto`)
Vertex    google-cloud-aiplatform 2.7.0, `aiplatform_v1/types/prediction_service.py`
Yandex    yandexcloud 0.413.0, `yandex/cloud/ai/foundation_models/v1`
"""

from dataclasses import replace
from urllib.parse import quote

from addon.dialects.clouds import flat
from addon.dialects.dialect import Asking, Dialect
from addon.dialects.facts import AnswerError
from addon.dialects.openai import chat as openai_chat
from addon.dialects.vendors import gemini
from addon.framing.grpc import Field, FieldKind, Message

CONTENT_TYPE = "application/grpc"
"""What the content types of gRPC and gRPC-Web begin with."""
STATUS = "grpc-status"
"""The trailer, or header of an answer without a body, that says how a call ended."""
REFUSED = "8"
"""The status of a call that a cap refuses: RESOURCE_EXHAUSTED."""
_STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
_PLAIN = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) != "%")
"""What stands in `grpc-message` as it is."""
_TEXT, _NUMBER, _WORD = FieldKind.TEXT, FieldKind.NUMBER, FieldKind.WORD
_XAI_USAGE: Message = {
    1: Field("completion_tokens"),
    2: Field("prompt_tokens"),
    3: Field("total_tokens", _NUMBER),
    4: Field("prompt_tokens_details.text_tokens", _NUMBER),
    5: Field("prompt_tokens_details.image_tokens", _NUMBER),
    6: Field("completion_tokens_details.reasoning_tokens"),
    7: Field("prompt_tokens_details.cached_tokens"),
    8: Field("num_sources_used", _NUMBER),
    9: Field("num_server_side_tools_used", FieldKind.ITEMS),
    11: Field("cost_in_usd_ticks", _NUMBER),
}
_REASONS = {1: "length", 2: "length", 3: "stop", 4: "tool_calls", 5: "time_limit"}
_TIERS = {1: "default", 2: "priority"}
_XAI_ANSWER: Message = {
    1: Field("id", _TEXT),
    2: Field("choices", FieldKind.MESSAGES, {1: Field("finish_reason", _WORD, _REASONS)}),
    6: Field("model", _TEXT),
    9: Field("usage", FieldKind.MESSAGE, _XAI_USAGE),
    15: Field("service_tier", _WORD, _TIERS),
}
_XAI_CHUNK: Message = {
    1: Field("id", _TEXT),
    2: Field("choices", FieldKind.MESSAGES, {3: Field("finish_reason", _WORD, _REASONS)}),
    4: Field("model", _TEXT),
    6: Field("usage", FieldKind.MESSAGE, _XAI_USAGE),
    12: Field("service_tier", _WORD, _TIERS),
}
_ANY = Field("", FieldKind.ANY)
_ANSWER_LIMITS: Message = {
    7: Field("max_tokens", _NUMBER),
    8: Field("n", _NUMBER),
    # logprobs, penalties, seed, stop, temperature, top_p
    **dict.fromkeys((5, 6, 9, 11, 12, 14, 15), _ANY),
}
_FUNCTION = Field("tools", FieldKind.MESSAGES, {1: _ANY})
_XAI_MESSAGE: Message = {
    1: Field("content", FieldKind.MESSAGES, {1: _ANY}),  # text
    # reasoning as text, role, name, id of a tool's call
    **dict.fromkeys((2, 3, 5, 7), _ANY),
    4: Field("tool_calls", FieldKind.MESSAGES, dict.fromkeys((1, 2, 3, 4, 10), _ANY)),
}
_XAI_ASKED: Message = {
    **_ANSWER_LIMITS,
    1: Field("messages", FieldKind.MESSAGES, _XAI_MESSAGE),
    2: Field("model", _TEXT),
    17: _FUNCTION,
    # penalty, format, user, choice of tools, effort, parallel calls, what is stored
    **dict.fromkeys((3, 10, 16, 18, 19, 21, 23), _ANY),
}
_XAI_SAMPLE_ASKED: Message = {
    **_ANSWER_LIMITS,
    3: Field("model", _TEXT),
    **dict.fromkeys((1, 13, 17), _ANY),  # prompt, penalty, user
}
_MODALITIES = {1: "TEXT", 2: "IMAGE", 3: "VIDEO", 4: "AUDIO", 5: "DOCUMENT"}
_BY_MODALITY = {1: Field("modality", _WORD, _MODALITIES), 2: Field("tokenCount")}
_TRAFFIC = {
    1: "ON_DEMAND",
    2: "PROVISIONED_THROUGHPUT",
    3: "ON_DEMAND_PRIORITY",
    4: "ON_DEMAND_FLEX",
}
_FINISHES = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
_VERTEX_USAGE: Message = {
    1: Field("promptTokenCount"),
    2: Field("candidatesTokenCount"),
    3: Field("totalTokenCount", _NUMBER),
    5: Field("cachedContentTokenCount", _NUMBER),
    8: Field("trafficType", _WORD, _TRAFFIC),
    9: Field("promptTokensDetails", FieldKind.MESSAGES, _BY_MODALITY),
    10: Field("cacheTokensDetails", FieldKind.MESSAGES, _BY_MODALITY),
    11: Field("candidatesTokensDetails", FieldKind.MESSAGES, _BY_MODALITY),
    12: Field("toolUsePromptTokensDetails", FieldKind.MESSAGES, _BY_MODALITY),
    14: Field("thoughtsTokenCount", _NUMBER),
}
_VERTEX: Message = {
    2: Field("candidates", FieldKind.MESSAGES, {3: Field("finishReason", _WORD, _FINISHES)}),
    4: Field("usageMetadata", FieldKind.MESSAGE, _VERTEX_USAGE),
    11: Field("modelVersion", _TEXT),
    13: Field("responseId", _TEXT),
}
_YANDEX: Message = {
    2: Field(
        "usage",
        FieldKind.MESSAGE,
        {
            1: Field("inputTextTokens"),
            2: Field("completionTokens"),
            3: Field("totalTokens", _NUMBER),
            4: Field(
                "completionTokensDetails", FieldKind.MESSAGE, {1: Field("reasoningTokens", _NUMBER)}
            ),
        },
    ),
    3: Field("modelVersion", _TEXT),
}


def _over_grpc(dialect: Dialect, message: Message, asked: Message | None = None) -> Dialect:
    return replace(
        dialect,
        name="unknown",
        message=message,
        request_message=asked,
        asking=Asking.NEVER,
        cost_limits=None,
    )


XAI_ANSWER = _over_grpc(openai_chat.CHAT, _XAI_ANSWER, _XAI_ASKED)
XAI_CHUNK = _over_grpc(openai_chat.CHAT, _XAI_CHUNK, _XAI_ASKED)
XAI_SAMPLE = _over_grpc(openai_chat.CHAT, _XAI_ANSWER, _XAI_SAMPLE_ASKED)
VERTEX = _over_grpc(gemini.GENERATE_CONTENT, _VERTEX)
YANDEX = _over_grpc(flat.YANDEX_COMPLETION, _YANDEX)


def error_of(status: str) -> AnswerError | None:
    """The error that a status says; None: all went well."""
    number = int(status) if status.isascii() and status.isdigit() and len(status) <= 2 else 2
    if number == 0:
        return None
    return AnswerError(type="grpc", code=_STATUSES[number] if number < len(_STATUSES) else None)


def refused_headers(content_type: str, message: str) -> dict[str, str]:
    """The answer of ours that refuses a call: headers alone, the trailers in them. A negative
    pushback asks clients not to repeat it (gRFC A6)."""
    return {
        "content-type": content_type,
        STATUS: REFUSED,
        "grpc-message": quote(message, safe=_PLAIN),
        "grpc-retry-pushback-ms": "-1",
    }


def status_in(trailers: bytes) -> str | None:
    """The status in the trailers of gRPC-Web, lines as of HTTP/1.1."""
    for line in trailers[:4_096].decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == STATUS:
            return value.strip()
    return None
