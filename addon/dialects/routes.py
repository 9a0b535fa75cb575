"""Pure. Path -> dialect: the table with a row for each endpoint of each wire format.

The end of a path determines the dialect, so it may have any prefix: `/openai/deployments/x/…`,
`/gemini/v1beta/…`, `/anthropic/v1/messages`, `/api/v1/…`. The dialect is the wire format, the
provider (`ledger.model.providers`) is who answers; one host may use several dialects.

    /chat/completions                    these segments, after any prefix
    /threads/{}/runs                     `{}` is one segment of any text
    /responses/resp_{}                   a segment with this prefix
    /models/{model}:generateContent      `{model}` is everything between, slashes included
    /ai/run/{model}                      everything to the end

Of a path longer than `PATH_LENGTH_MAX` the end counts, at hosts that serve LLMs. A search costs one
dictionary look-up by the path's last word, then one comparison for each of the few templates that
end in this word: its time is linear in the length of the path.

A path alone confirms an LLM call only at a host in the table of providers. At other hosts, and for
paths that other services use too (`is_generic`), the request or the answer must confirm it
(`shapes`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote

from addon.dialects import fetched, grpc, hosted, local
from addon.dialects.clouds import dashscope, flat, vercel, wrapped
from addon.dialects.dialect import Dialect
from addon.dialects.openai import chat as openai_chat
from addon.dialects.openai import endpoints as openai_other
from addon.dialects.openai import responses as openai_responses
from addon.dialects.unrouted import UNKNOWN as UNKNOWN_DIALECT
from addon.dialects.vendors import anthropic, bedrock, cohere, dify, gemini, mistral
from ledger.model import provider_table

PATH_LENGTH_MAX = 2_048
"""Characters. The longest LLM paths name a Bedrock ARN and are under 300."""
_MODEL = "{model}"
_ANY = "{}"


@dataclass(frozen=True, slots=True)
class Template:
    """One parsed template."""

    last_word: str
    """The last word of a fitting path; empty for any word."""
    head: str
    """The required text before `{model}`; empty for a template without one."""
    tail: str
    """The required end of the path, or, without `{model}`, a pattern for its last segments."""
    segments: int
    pattern: re.Pattern[str] | None

    def find(self, path: str) -> str | None:
        """The text at `{model}`, still escaped; empty for a template without one. None: the path
        does not fit. `path` has no query and no slash at its end."""
        if self.pattern is not None:
            before = path.rsplit("/", self.segments)[0]
            return "" if self.pattern.fullmatch(path, len(before)) else None
        start = path.find(self.head)
        if start < 0 or not path.endswith(self.tail):
            return None
        return path[start + len(self.head) : len(path) - len(self.tail)] or None


def template_of(text: str) -> Template:
    """Parse a template."""
    head, separator, tail = text.partition(_MODEL)
    if separator:
        return Template(last_word(tail) if tail else "", head, tail, 0, None)
    parts = [re.escape(part) for part in text.split(_ANY)]
    return Template(
        last_word="" if _ANY in text.rpartition("/")[2] else last_word(text),
        head="",
        tail=text,
        segments=text.count("/"),
        pattern=re.compile("[^/]+".join(parts)),
    )


def last_word(path: str) -> str:
    """The last word of a path: its last segment, or the part of it after a colon."""
    return path.rpartition("/")[2].rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The facts from method, host and path of a request."""

    dialect: Dialect
    path_model: str | None = None
    """The model or deployment named in the path (Gemini, Bedrock, Azure)."""
    path_streamed: bool | None = None
    """Whether the path asks for a stream; None if the body decides."""
    host_is_known: bool = True
    """The table of providers names the host, and no other service answers there."""
    is_confirmed: bool = True
    """The route confirms an LLM call; False if the request or the answer must confirm it."""
    is_fetch: bool = False
    """The request fetches the result of an earlier one: a call only if the result is ready."""
    needs_stream: bool = False
    """The request asks for nothing: a call only if its answer is a stream."""


UNKNOWN = Route(dialect=UNKNOWN_DIALECT)
"""For an unknown path at a host that serves LLMs."""
UNKNOWN_FETCH = Route(
    dialect=UNKNOWN_DIALECT, host_is_known=False, is_confirmed=False, needs_stream=True
)
"""The same for a request without a body."""


class RouteRow(NamedTuple):
    """One endpoint: how its path ends, and the format of its wire."""

    path: str
    """A template for how the path ends."""
    dialect: Dialect | None
    """None: a path that would fit a later row, but is not an LLM call."""
    streamed: bool | None = None
    methods: tuple[str, ...] = ("POST",)
    providers: tuple[str, ...] = ()
    """Only at hosts of these providers; empty for all hosts."""
    is_generic: bool = False
    """Other services use such paths too, so even a known host does not confirm a call."""
    models: tuple[str, ...] = ()
    """Only for models whose names begin so; empty for all models."""


_GET = ("GET",)
_GET_POST = ("GET", "POST")
ROWS = (
    # Ollama, before OpenAI's shorter `/embeddings`.
    RouteRow("/api/chat", local.OLLAMA_CHAT),
    RouteRow("/api/generate", local.OLLAMA_GENERATE),
    RouteRow("/api/embed", local.OLLAMA_EMBED),
    RouteRow("/api/embeddings", local.OLLAMA_EMBED),
    # OpenAI, and everyone compatible.
    RouteRow("/chat/completions", openai_chat.CHAT),
    RouteRow("/agents/completions", openai_chat.CHAT),  # Mistral
    RouteRow("/v1/chat", openai_chat.CHAT, providers=("writer",)),
    RouteRow("/text/chat", openai_chat.CHAT),  # watsonx
    RouteRow("/text/chat_stream", openai_chat.CHAT, True),
    RouteRow("/inference:complete", openai_chat.CHAT),  # Snowflake
    RouteRow("/text/chatcompletion_v2", openai_chat.CHAT, providers=("minimax",)),
    RouteRow("/layout_parsing", openai_chat.CHAT, providers=("zai",)),
    RouteRow("/completions", openai_chat.COMPLETIONS),
    RouteRow("/responses", openai_responses.RESPONSES),
    RouteRow("/responses/compact", openai_responses.RESPONSES),
    RouteRow("/responses/resp_{}", openai_responses.RESPONSES, methods=_GET),
    RouteRow("/responses/{}", openai_responses.RESPONSES, methods=_GET, providers=("x_ai",)),
    RouteRow("/decisions", gemini.INTERACTIONS, providers=("gcp.gemini", "gcp.vertex_ai")),
    RouteRow("/decisions", openai_other.DECISIONS),
    RouteRow("/threads/{}/runs", openai_other.RUNS),
    RouteRow("/threads/{}/runs/{}/submit_tool_outputs", openai_other.RUNS),
    RouteRow("/threads/runs", openai_other.RUNS),
    RouteRow("/threads/{}/runs/run_{}", openai_other.RUNS, methods=_GET),
    RouteRow("/images/generations", openai_other.IMAGES),
    RouteRow("/api/v1/images", openai_other.IMAGES, providers=("openrouter",)),
    RouteRow("/images/edits", openai_other.IMAGES),
    RouteRow("/images/variations", openai_other.IMAGES),
    RouteRow("/videos/video_{}", openai_other.VIDEO, methods=_GET),
    RouteRow("/videos/{}", openai_other.VIDEO, methods=_GET, providers=("openrouter",)),
    RouteRow("/video/generations/jobs/{}", openai_other.VIDEO, methods=_GET),  # Azure
    RouteRow("/audio/transcriptions", openai_other.TRANSCRIPTIONS),
    RouteRow("/audio/translations", openai_other.TRANSCRIPTIONS),
    RouteRow("/audio/speech", openai_other.SPEECH),
    RouteRow("/stt", openai_other.TRANSCRIPTIONS, providers=("x_ai",)),
    RouteRow("/tts", openai_other.SPEECH, providers=("x_ai",)),
    RouteRow("/moderations", openai_other.MODERATIONS),
    RouteRow("/classifications", openai_other.MODERATIONS, providers=("mistral_ai",)),
    RouteRow("/embeddings", openai_other.EMBEDDINGS),
    RouteRow("/multimodalembeddings", openai_other.EMBEDDINGS),  # Voyage
    RouteRow("/contextualizedembeddings", openai_other.EMBEDDINGS),
    # The model decides the format of a serving endpoint; nearly all language models use this one.
    RouteRow("/invocations", openai_chat.CHAT, is_generic=True),  # Databricks, SageMaker
    RouteRow("/invocations-response-stream", openai_chat.CHAT, True, is_generic=True),
    RouteRow("/chat/deferred-completion/{}", fetched.XAI_DEFERRED, methods=_GET),
    RouteRow("/async/chat/completions/{}", fetched.PERPLEXITY_ASYNC, methods=_GET),
    RouteRow("/async-result/{}", openai_chat.CHAT, methods=_GET),  # Z.ai
    RouteRow("/contents/generations/tasks/{}", fetched.VOLCENGINE_TASK, methods=_GET),
    # llama.cpp's streams that can be taken up again, by the conversation.
    RouteRow("/v1/stream", openai_chat.CHAT, methods=_GET),
    RouteRow("/v1/stream/{}", openai_chat.CHAT, methods=_GET),
    # Of OpenAI, Azure, Mistral, Groq.
    RouteRow("/files/{}/content", fetched.OPENAI_FILE, methods=_GET),
    RouteRow("/batch/jobs/{}", fetched.MISTRAL_JOB, methods=_GET),
    RouteRow("/batches/{}/results", fetched.XAI_PAGE, methods=_GET, providers=("x_ai",)),
    # Sessions of hosted agents: whatever answers with a session states what it used.
    *(
        RouteRow(path, hosted.ANTHROPIC_SESSIONS, providers=("anthropic",))
        for path in hosted.ANTHROPIC_ORDERS
    ),
    *(
        RouteRow(path, hosted.OPENAI_SESSIONS, providers=("openai",))
        for path in hosted.OPENAI_ORDERS
    ),
    *(
        RouteRow(path, hosted.ANTHROPIC_SESSIONS, methods=_GET_POST, providers=("anthropic",))
        for path in hosted.ANTHROPIC_PATHS
    ),
    *(
        RouteRow(path, hosted.OPENAI_SESSIONS, methods=_GET_POST, providers=("openai",))
        for path in hosted.OPENAI_PATHS
    ),
    # Anthropic.
    RouteRow("/threads/{}/messages", None),
    RouteRow("/v1/messages", anthropic.MESSAGES),
    RouteRow("/messages", anthropic.MESSAGES, is_generic=True),
    RouteRow("/v1/complete", anthropic.COMPLETE),
    RouteRow("/messages/batches/{}/results", fetched.ANTHROPIC_FILE, methods=_GET),
    RouteRow("/publishers/anthropic/models/{model}:rawPredict", anthropic.MESSAGES, False),
    RouteRow("/publishers/anthropic/models/{model}:streamRawPredict", anthropic.MESSAGES, True),
    # Google. Mistral and others on Vertex write OpenAI's format.
    RouteRow("/models/{model}:rawPredict", openai_chat.CHAT, False),
    RouteRow("/models/{model}:streamRawPredict", openai_chat.CHAT, True),
    RouteRow("/endpoints/{model}:rawPredict", openai_chat.CHAT, False),
    RouteRow("/endpoints/{model}:streamRawPredict", openai_chat.CHAT, True),
    RouteRow("/models/{model}:generateContent", gemini.GENERATE_CONTENT, False),
    RouteRow("/tunedModels/{model}:generateContent", gemini.GENERATE_CONTENT, False),
    RouteRow("/endpoints/{model}:generateContent", gemini.GENERATE_CONTENT, False),
    RouteRow("/models/{model}:streamGenerateContent", gemini.GENERATE_CONTENT, True),
    RouteRow("/tunedModels/{model}:streamGenerateContent", gemini.GENERATE_CONTENT, True),
    RouteRow("/endpoints/{model}:streamGenerateContent", gemini.GENERATE_CONTENT, True),
    # Chuizi AI writes the method as a path segment of its own.
    RouteRow("/models/{model}/generateContent", gemini.GENERATE_CONTENT, False),
    RouteRow("/models/{model}/streamGenerateContent", gemini.GENERATE_CONTENT, True),
    RouteRow("/v1internal:generateContent", gemini.GENERATE_CONTENT, False),  # Code Assist
    RouteRow("/v1internal:streamGenerateContent", gemini.GENERATE_CONTENT, True),
    RouteRow("/models/{model}:embedContent", gemini.EMBEDDINGS, False),
    RouteRow("/models/{model}:batchEmbedContents", gemini.EMBEDDINGS, False),
    RouteRow("/models/{model}:embedText", gemini.EMBEDDINGS, False),
    RouteRow("/models/{model}:predict", gemini.IMAGES, False, models=gemini.IMAGE_MODELS),
    RouteRow("/models/{model}:predict", gemini.MUSIC, False, models=gemini.MUSIC_MODELS),
    RouteRow("/models/{model}:predict", gemini.EMBEDDINGS, False),
    # Vertex fetches an operation by POST.
    RouteRow("/models/{model}:fetchPredictOperation", gemini.VIDEOS, False, ("POST", *_GET)),
    RouteRow("/operations/{}", gemini.VIDEOS, methods=_GET, providers=("gcp.gemini",)),
    RouteRow("/rankingConfigs/{}:rank", gemini.RANKING, False),
    RouteRow("/interactions", gemini.INTERACTIONS),
    RouteRow("/interactions/{}", gemini.INTERACTIONS, methods=_GET),
    RouteRow("/batches/{}", fetched.GEMINI_OPERATION, methods=_GET, providers=("gcp.gemini",)),
    RouteRow("/files/{}:download", fetched.OPENAI_FILE, methods=_GET, providers=("gcp.gemini",)),
    # Amazon, and SAP's way to it, which names a deployment instead of a model.
    RouteRow("/model/{model}/converse", bedrock.CONVERSE, False),
    RouteRow("/model/{model}/converse-stream", bedrock.CONVERSE, True),
    RouteRow("/model/{model}/invoke", bedrock.INVOKE, False),
    RouteRow("/model/{model}/invoke-with-response-stream", bedrock.INVOKE, True),
    RouteRow("/model/{model}/invoke-with-bidirectional-stream", bedrock.SESSION, True),
    RouteRow("/agents/{}/agentAliases/{}/sessions/{}/text", bedrock.AGENT, True),
    # An agent that the request defines.
    RouteRow("/agents/{}", bedrock.AGENT, True, providers=("aws.bedrock",)),
    RouteRow("/inference/deployments/{model}/converse", bedrock.CONVERSE, False),
    RouteRow("/inference/deployments/{model}/converse-stream", bedrock.CONVERSE, True),
    RouteRow("/inference/deployments/{model}/invoke", bedrock.INVOKE, False),
    RouteRow("/inference/deployments/{model}/invoke-with-response-stream", bedrock.INVOKE, True),
    RouteRow("/inference/deployments/{}/completion", wrapped.SAP),
    RouteRow("/inference/deployments/{}/v2/completion", wrapped.SAP),
    # Other makers of models.
    RouteRow("/v1/chat", cohere.CHAT, providers=("cohere",)),
    RouteRow("/v2/chat", cohere.CHAT),
    RouteRow("/v1/generate", cohere.GENERATE),
    RouteRow("/v1/embed", cohere.EMBED),
    RouteRow("/v2/embed", cohere.EMBED),
    RouteRow("/v1/rerank", cohere.RERANK, providers=("cohere",)),
    RouteRow("/v2/rerank", cohere.RERANK),
    RouteRow("/rerank", openai_other.RERANK),
    RouteRow("/conversations", mistral.CONVERSATIONS, providers=("mistral_ai",)),
    RouteRow("/conversations/{}", mistral.CONVERSATIONS, providers=("mistral_ai",)),
    RouteRow("/conversations/{}/restart", mistral.CONVERSATIONS, providers=("mistral_ai",)),
    RouteRow("/ocr", mistral.OCR, providers=("mistral_ai",)),
    RouteRow("/complete", flat.ALEPH_ALPHA_COMPLETE, providers=("aleph_alpha",)),
    RouteRow("/semantic_embed", flat.ALEPH_ALPHA_EMBED),
    RouteRow("/embed", flat.ALEPH_ALPHA_EMBED, providers=("aleph_alpha",)),
    # Platforms.
    RouteRow("/text/generation", flat.WATSONX),
    RouteRow("/v1-beta/generation/text", flat.WATSONX, providers=("ibm.watsonx.ai",)),
    RouteRow("/v1-beta/generation/text_stream", flat.WATSONX, True, providers=("ibm.watsonx.ai",)),
    RouteRow("/text/generation_stream", flat.WATSONX, True),
    RouteRow("/services/aigc/text-generation/generation", dashscope.GENERATION),
    RouteRow("/services/aigc/multimodal-generation/generation", dashscope.GENERATION),
    RouteRow("/services/embeddings/text-embedding/text-embedding", dashscope.EMBEDDING),
    RouteRow("/services/rerank/text-rerank/text-rerank", dashscope.RERANK),
    RouteRow("/tasks/{}", dashscope.TASK, methods=_GET, providers=("dashscope",)),
    RouteRow("/apps/{}/completion", dashscope.GENERATION, providers=("dashscope",)),
    RouteRow("/wenxinworkshop/chat/{model}", flat.BAIDU_CHAT),
    RouteRow("/wenxinworkshop/completions/{model}", flat.BAIDU_CHAT),
    RouteRow("/wenxinworkshop/embeddings/{model}", flat.BAIDU_EMBEDDINGS),
    RouteRow("/", flat.TENCENT, providers=("tencent",), is_generic=True),
    RouteRow("/foundationModels/v1/completion", flat.YANDEX_COMPLETION),
    RouteRow("/foundationModels/v1/textEmbedding", flat.YANDEX_EMBEDDING),
    RouteRow("/operations/{}", flat.YANDEX_OPERATION, methods=_GET, providers=("yandex",)),
    RouteRow("/actions/chat", flat.ORACLE_CHAT),
    RouteRow("/actions/generateText", flat.ORACLE_CHAT),
    RouteRow("/actions/embedText", flat.ORACLE_EMBED),
    RouteRow("/ai/run/{model}", wrapped.CLOUDFLARE),
    RouteRow("/ai/language-model", vercel.LANGUAGE_MODEL),
    RouteRow("/ai/embedding-model", vercel.EMBEDDING_MODEL),
    RouteRow("/chat-messages", dify.CHAT),
    RouteRow("/completion-messages", dify.CHAT),
    RouteRow("/workflows/run", dify.WORKFLOW, is_generic=True),
    RouteRow("/v1/inference/{model}", flat.DEEPINFRA, providers=("deepinfra",)),
    RouteRow("/v1/predictions", flat.REPLICATE),
    RouteRow("/v1/models/{}/{}/predictions", flat.REPLICATE),
    RouteRow("/v1/deployments/{}/{}/predictions", flat.REPLICATE),
    RouteRow("/v1/predictions/{}", flat.REPLICATE, methods=_GET),
    # Over gRPC.
    RouteRow("/xai_api.Chat/GetCompletion", grpc.XAI_ANSWER, False),
    RouteRow("/xai_api.Chat/GetCompletionChunk", grpc.XAI_CHUNK, True),
    RouteRow("/xai_api.Sample/SampleText", grpc.XAI_SAMPLE, False),
    RouteRow("/xai_api.Sample/SampleTextStreaming", grpc.XAI_SAMPLE, True),
    RouteRow("/google.cloud.aiplatform.{}.PredictionService/GenerateContent", grpc.VERTEX, False),
    RouteRow(
        "/google.cloud.aiplatform.{}.PredictionService/StreamGenerateContent", grpc.VERTEX, True
    ),
    RouteRow(
        "/yandex.cloud.ai.foundation_models.v1.TextGenerationService/Completion", grpc.YANDEX, True
    ),
    # Servers that people run themselves.
    RouteRow("/api/v1/chat", local.LM_STUDIO_CHAT, is_generic=True),
    RouteRow("/completion", local.LLAMA_CPP_COMPLETION, is_generic=True),
    RouteRow("/infill", local.LLAMA_CPP_COMPLETION, is_generic=True),
    RouteRow("/generate", local.TGI_GENERATE, is_generic=True),
    RouteRow("/generate_stream", local.TGI_GENERATE, True, is_generic=True),
)
"""Of the rows with the path's last word, the first that fits applies."""
WEBSOCKET_ROWS = (
    RouteRow("/realtime", openai_responses.REALTIME, True),
    RouteRow("/responses", openai_responses.RESPONSES, True),
    RouteRow("/live/sessions", openai_responses.RESPONSES, True),
    RouteRow("/ws/google.ai.generativelanguage.{}", gemini.LIVE, True),
    RouteRow("/ws/google.cloud.aiplatform.{}/BidiGenerateContent", gemini.LIVE, True),
)

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (*(row.dialect for row in (*ROWS, *WEBSOCKET_ROWS)), UNKNOWN_DIALECT)
    if dialect is not None
}
_ANSWER_KEYS = frozenset(
    (
        *("__type", "action", "alternatives", "arguments", "audio", "batch_request_id"),
        *("batch_result", "body", "bot_usage", "bytesBase64Encoded", "cache_miss_reason"),
        *("call_id", "candidates", "category", "chat_get_completion", "chatResponse", "Choices"),
        *("choices", "classifications", "Code", "code", "completion", "completionReason"),
        *("completions", "container_id", "Content", "content", "content_block", "conversation_id"),
        *("copilot_usage", "count", "Created", "created", "created_at", "createTime", "custom_id"),
        *("data", "decision", "Delta", "delta", "detail", "details", "diagnostics", "done"),
        *("done_reason", "embedding", "environment", "error", "error_message", "error_msg"),
        *("error_type", "errorMessage", "ErrorMsg", "errors", "event", "event_id", "event_type"),
        *("extra_properties", "final_result", "finish", "finish_reason", "finishReason"),
        *("foundationModel", "gateway", "gcsUri", "generated_text", "generatedSamples"),
        *("generatedTexts", "generateVideoResponse", "generation_id", "generations", "google"),
        *("groundingMetadata", "height", "Id", "id", "image_gen", "image_tokens", "images"),
        *("incomplete_details", "index", "inferenceResponse", "inlinedResponses", "input"),
        *("interaction", "interaction_id", "interrupted", "item", "item_id", "key", "last_error"),
        *("maps", "Message", "message", "message_id", "messages", "meta", "metadata", "metrics"),
        *("modality", "model", "model_id", "model_instance_id", "modelId", "modelInvocationInput"),
        *("modelInvocationOutput", "modelTurn", "modelVersion", "Msg", "n_seconds", "n_variants"),
        *("num_requests", "object", "orchestration_result", "output", "outputs"),
        *("outputTranscription", "parts", "performanceConfig", "predictions"),
        *("prompt_cache_diagnostics", "promptFeedback", "providerMetadata", "reason"),
        *("reasoning_content", "ReasoningContent", "request_id", "Response", "response"),
        *("response_id", "responseId", "result", "retrievedContext", "role", "search_units"),
        *("seconds", "serverContent", "service_tier", "serviceTier", "session", "setup", "size"),
        *("status", "status_details", "step", "steps", "stop_details", "stop_reason", "stop_type"),
        *("stopReason", "success", "summary", "svg_usage", "system_fingerprint", "task_id"),
        *("task_status", "text", "token", "token_count", "token_details", "token_type"),
        *("tokenCount", "tool_calls", "tool_usage", "toolCall", "ToolCalls", "toolCalls", "tools"),
        *("total_cost", "total_nano_aiu", "traffic_type", "trafficType", "transcript", "trigger"),
        *("ttl", "turnComplete", "turnCompleteReason", "type", "unified", "units"),
        *("upstream_inference_cost", "usage", "usd", "videos", "web", "web_fetch_requests"),
        *("web_search", "web_search_requests", "web_searches", "webSearchQueries"),
        *("webSearchRequests", "width", "workflow_run_id", "x_groq"),
    )
)
"""The keys that dialects read around a usage object and in it, in the spellings of all formats."""
_PARAMETERS = re.compile(r";[^/]*")
_SLASHES = re.compile("/{2,}")
_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/")
MATCHES_MAX = 512
"""Size of the cache of routes, about 1 MB: most clients request the same path repeatedly."""


class RouteTable:
    """Rows by the last word of their path, so that a path is compared with few of them."""

    def __init__(self, rows: Iterable[RouteRow]) -> None:
        by_word: dict[str, list[tuple[Template, RouteRow]]] = defaultdict(list)
        for row in rows:
            template = template_of(row.path)
            by_word[template.last_word].append((template, row))
        any_word = by_word.pop("", [])
        self._by_word = {word: (*found, *any_word) for word, found in by_word.items()}
        self._any_word = tuple(any_word)
        self._remembered = lru_cache(maxsize=MATCHES_MAX)(self._match)

    def match(
        self, method: str, host: str, path: str, *, is_named: bool = False, named: str | None = None
    ) -> Route | None:
        """The route of a request; None for what has none. `path` has no query. `is_named`: the
        operator says that the host serves LLMs; `named`: of which provider."""
        if len(path) > PATH_LENGTH_MAX:
            path = path[-PATH_LENGTH_MAX:]
            is_exact = False
        else:
            is_exact = True
        seller = (named or "") if is_named else None
        if len(method) + len(host) > PATH_LENGTH_MAX:
            return self._match(method, host, path, is_exact, seller)
        return self._remembered(method, host, path, is_exact, seller)

    def _match(
        self, method: str, host: str, path: str, is_exact: bool, named: str | None
    ) -> Route | None:
        """The route of the path, or at a host that serves LLMs of what it means there: servers
        ignore repeated slashes, parameters of segments, fragments and escapes, and many the case.
        """
        plain = _SLASHES.sub("/", _PARAMETERS.sub("", path.partition("#")[0]))
        exact = self._fitting(method, host, path, named) if is_exact else None
        if exact is not None and plain == path:
            return exact
        decoded = normpath(_SLASHES.sub("/", unquote(plain).strip()))
        for spelling in (plain, decoded, decoded.lower()):
            found = self._fitting(method, host, spelling, named)
            if found is not None and (found.host_is_known or named is not None):
                return found
        return exact

    def _fitting(self, method: str, host: str, path: str, named: str | None) -> Route | None:
        path = path.removesuffix("/") or path
        name, separator, port = host.rpartition(":")
        for template, row in self._by_word.get(last_word(path), self._any_word):
            if method not in row.methods:
                continue
            model = template.find(path)
            if model is None:
                continue
            provider = provider_table.TABLE.at(name if separator and port.isdigit() else host, path)
            listed = provider.name if provider is not None else None
            if row.providers and listed not in row.providers and named not in row.providers:
                continue
            if row.models and not model.startswith(row.models):
                continue
            if row.dialect is None:
                return None
            if not model and (deployment := _DEPLOYMENT.search(path)):
                model = deployment[1]
            is_fetch = "GET" in row.methods
            is_known = provider is not None and not provider.hosts_are_shared
            return Route(
                dialect=row.dialect,
                path_model=unquote(model) if model else None,
                path_streamed=row.streamed,
                host_is_known=is_known,
                is_confirmed=is_known and not row.is_generic and not is_fetch,
                is_fetch=is_fetch,
            )
        return None


match = RouteTable(ROWS).match
"""Of a request."""
match_websocket = partial(RouteTable(WEBSOCKET_ROWS).match, "POST")
"""Of a WebSocket session."""


@cache
def answer_keys() -> frozenset[str]:
    """The keys to read of a long answer: any may be a figure's."""
    known = [
        key
        for dialect in DIALECTS.values()
        for path in dialect.known_keys
        for key in path.split(".")
    ]
    marks = [
        mark.needle.strip(b'"').decode() for dialect in DIALECTS.values() for mark in dialect.marks
    ]
    return _ANSWER_KEYS.union(known, marks)
