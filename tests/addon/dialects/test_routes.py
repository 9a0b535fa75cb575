"""Any prefix before a path works, in time linear in its length; what is no LLM call matches nothing."""

import ast
import time
from pathlib import Path

from addon.dialects import routes
from addon.dialects.routes import PATH_LENGTH_MAX, last_word, template_of
from tests.named import for_each


@for_each(
    "host, path, dialect, model, streamed",
    [
        ("api.openai.com", "/v1/chat/completions", "openai.chat", None, None),
        ("api.openai.com", "/v1/chat/completions/", "openai.chat", None, None),
        ("openrouter.ai", "/api/v1/chat/completions", "openai.chat", None, None),
        ("localhost", "/any/prefix/at/all/v1/chat/completions", "openai.chat", None, None),
        ("r.openai.azure.com", "/openai/deployments/my%20gpt/chat/completions", "openai.chat", "my gpt", None),
        ("api.mistral.ai", "/v1/agents/completions", "openai.chat", None, None),
        ("api.mistral.ai", "/v1/fim/completions", "openai.completions", None, None),
        ("api.writer.com:443", "/v1/chat", "openai.chat", None, None),
        ("api.openai.com", "/v1/completions", "openai.completions", None, None),
        ("api.openai.com", "/v1/responses", "openai.responses", None, None),
        ("api.openai.com", "/v1/responses/compact", "openai.responses", None, None),
        ("chatgpt.com", "/backend-api/codex/responses", "openai.responses", None, None),
        ("api.openai.com", "/v1/threads/thread_1/runs", "openai.runs", None, None),
        ("api.openai.com", "/v1/threads/t/runs/run_1/submit_tool_outputs", "openai.runs", None, None),
        ("api.openai.com", "/v1/embeddings", "openai.embeddings", None, None),
        ("api.openai.com", "/v1/images/generations", "openai.images", None, None),
        ("api.openai.com", "/v1/audio/speech", "openai.speech", None, None),
        ("api.openai.com", "/v1/moderations", "openai.moderations", None, None),
        ("api.voyageai.com", "/v1/rerank", "openai.rerank", None, None),
        ("api.anthropic.com", "/v1/messages", "anthropic.messages", None, None),
        ("api.chuizi.ai", "/anthropic/v1/messages", "anthropic.messages", None, None),
        ("x-aiplatform.googleapis.com", "/v1/p/publishers/anthropic/models/claude@1:rawPredict", "anthropic.messages", "claude@1", False),
        ("x-aiplatform.googleapis.com", "/v1/p/publishers/mistralai/models/m@1:streamRawPredict", "openai.chat", "m@1", True),
        ("g", "/v1beta/models/gemini-2.5:generateContent", "gemini.generate_content", "gemini-2.5", False),
        ("g", "/v1beta/models/gemini-2.5:streamGenerateContent", "gemini.generate_content", "gemini-2.5", True),
        ("g", "/gemini/v1beta/models/google/gemini-3:streamGenerateContent", "gemini.generate_content", "google/gemini-3", True),
        ("g", "/v1/projects/p/locations/l/publishers/google/models/m:generateContent", "gemini.generate_content", "m", False),
        ("g", "/v1beta/tunedModels/mine:generateContent", "gemini.generate_content", "mine", False),
        ("g", "/v1internal:streamGenerateContent", "gemini.generate_content", None, True),
        ("g", "/v1beta/models/e:batchEmbedContents", "gemini.embeddings", "e", False),
        ("g", "/v1/publishers/google/models/e:predict", "gemini.embeddings", "e", False),
        ("g", "/v1beta/models/imagen-4.0-generate-001:predict", "gemini.images", "imagen-4.0-generate-001", False),
        ("g", "/v1/projects/p/locations/global/rankingConfigs/d:rank", "gemini.ranking", None, False),
        ("g", "/v1beta/interactions", "gemini.interactions", None, None),
        ("g", "/v1beta/openai/chat/completions", "openai.chat", None, None),
        ("api.cohere.com", "/v2/chat", "cohere.chat", None, None),
        ("api.cohere.ai", "/v1/chat", "cohere.chat", None, None),
        ("api.cohere.ai", "/v1/generate", "cohere.generate", None, None),
        ("api.cohere.com", "/v2/embed", "cohere.embed", None, None),
        ("api.cohere.com", "/v1/rerank", "cohere.rerank", None, None),
        ("localhost:11434", "/api/chat", "ollama.chat", None, None),
        ("localhost:11434", "/api/generate", "ollama.generate", None, None),
        ("localhost:11434", "/api/embed", "ollama.embed", None, None),
        ("localhost:11434", "/api/embeddings", "ollama.embed", None, None),
        ("openrouter.ai", "/api/v1/embeddings", "openai.embeddings", None, None),
        ("b", "/model/anthropic.claude-v2%3A1/converse", "bedrock.converse", "anthropic.claude-v2:1", False),
        ("b", "/model/us.amazon.nova/converse-stream", "bedrock.converse", "us.amazon.nova", True),
        ("b", "/model/m/invoke", "bedrock.invoke", "m", False),
        ("b", "/model/m/invoke-with-response-stream", "bedrock.invoke", "m", True),
        ("b", "/model/arn:aws:bedrock:r:1:imported-model/x/invoke", "bedrock.invoke", "arn:aws:bedrock:r:1:imported-model/x", False),
        ("api.replicate.com", "/v1/models/meta/llama/predictions", "replicate.predictions", None, None),
    ],
)  # fmt: skip
def test_where_a_path_leads(
    host: str, path: str, dialect: str, model: str | None, streamed: bool | None
) -> None:
    route = routes.match("POST", host, path)
    assert route is not None
    assert (route.dialect.name, route.path_model, route.path_streamed) == (dialect, model, streamed)


@for_each(
    "method, path",
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/chat/completions"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/threads/thread_1/messages"),
        ("POST", "/v1/threads/v1/messages"),
        ("POST", "/v1beta/models/gemini:countTokens"),
        ("POST", "/v1/files"),
        ("POST", "/api/pull"),
        ("POST", "/telemetry/runs"),
        ("POST", "/"),
    ],
)
def test_what_is_no_llm_call_matches_nothing(method: str, path: str) -> None:
    assert routes.match(method, "api.openai.com", path) is None


def test_a_host_too_long_to_be_remembered_finds_its_route() -> None:
    host = "a" * PATH_LENGTH_MAX
    route = routes.match("POST", host, "/v1/chat/completions")
    assert route is not None
    assert route.dialect.name == "openai.chat"


@for_each(
    "host, path, dialect",
    [
        ("api.openai.com", "/v1/responses/resp_1", "openai.responses"),
        ("api.z.ai", "/api/paas/v4/async-result/1", "openai.chat"),
        ("open.bigmodel.cn", "/api/paas/v4/async-result/1", "openai.chat"),
        ("localhost:8080", "/v1/stream", "openai.chat"),
        ("localhost:8080", "/v1/stream/c1", "openai.chat"),
        ("ark.cn-beijing.volces.com", "/api/v3/contents/generations/tasks/cgt-1", "volcengine.task"),
        ("dashscope.aliyuncs.com", "/api/v1/tasks/1", "dashscope.task"),
        ("api.replicate.com", "/v1/predictions/1", "replicate.predictions"),
    ],
)  # fmt: skip
def test_what_was_ordered_earlier_is_read_when_it_is_fetched(
    host: str, path: str, dialect: str
) -> None:
    route = routes.match("GET", host, path)
    assert route is not None
    assert (route.dialect.name, route.is_fetch) == (dialect, True)


@for_each(
    "path, dialect",
    [
        ("/v1/realtime", "openai.realtime"),
        ("/openai/realtime", "openai.realtime"),
        ("/v1/responses", "openai.responses"),
        ("/backend-api/codex/responses", "openai.responses"),
        (
            "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
            "gemini.live",
        ),
        ("/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent", "gemini.live"),
        ("/chat", None),
    ],
)
def test_where_a_websocket_leads(path: str, dialect: str | None) -> None:
    route = routes.match_websocket("h", path)
    assert (route.dialect.name if route else None) == dialect


def test_every_dialect_is_known_by_its_name() -> None:
    assert all(name == dialect.name for name, dialect in routes.DIALECTS.items())
    assert routes.DIALECTS["unknown"] is routes.UNKNOWN.dialect


@for_each(
    "template, path, model",
    [
        ("/chat/completions", "/chat/completions", ""),
        ("/chat/completions", "/v1/chat/completions", ""),
        ("/chat/completions", "/completions", None),
        ("/chat/completions", "/xchat/completions", None),
        ("/chat/completions", "chat/completions", None),
        ("/threads/{}/runs", "/v1/threads/t-1/runs", ""),
        ("/threads/{}/runs", "/v1/threads//runs", None),
        ("/threads/{}/runs", "/v1/threads/a/b/runs", None),
        ("/responses/resp_{}", "/v1/responses/resp_1", ""),
        ("/responses/resp_{}", "/v1/responses/other_1", None),
        ("/models/{model}:go", "/v1/models/a/b:go", "a/b"),
        ("/models/{model}:go", "/v1/models/:go", None),
        ("/models/{model}:go", "/v1/models/a:stop", None),
        ("/models/{model}:go", "/v1/model/a:go", None),
        ("/ai/run/{model}", "/accounts/1/ai/run/@cf/m", "@cf/m"),
        ("/", "/", ""),
        ("/", "/x", None),
    ],
)
def test_what_fits(template: str, path: str, model: str | None) -> None:
    assert template_of(template).find(path) == model


def test_the_last_word_of_a_path() -> None:
    assert last_word("/v1/models/a:go") == "go"
    assert last_word("/v1/chat/completions") == "completions"
    assert template_of("/responses/resp_{}").last_word == ""
    assert template_of("/ai/run/{model}").last_word == ""


def test_a_path_beyond_any_in_use_matches_nothing() -> None:
    path = "/x" * PATH_LENGTH_MAX + "/chat/completions"
    assert routes.match("POST", "h", path) is None


def test_a_hostile_path_costs_no_more_than_its_length() -> None:
    """CPU of the worst of these against that of an ordinary path: bounded, whatever it repeats."""
    hostile = [
        "/models/" * 255 + ":generateContent",
        "/deployments/" * 150 + "/chat/completions",
        "/" * 2_000 + "runs",
        "/publishers/anthropic/models/" * 60 + ":rawPredict",
        "/model/" + "x" * 2_000 + "/invoke",
    ]
    started = time.process_time()
    for path in hostile:
        for _ in range(100):
            routes.match("POST", "h.example", path)
    assert time.process_time() - started < 2.0  # 500 matches; 20 µs each when idle


@for_each(
    "path",
    [
        "/V1/Chat/Completions",
        "/v1/chat;a=b/completions;c",
        "/v1/chat/completions#a",
        "/v1/chat/Completions;x#y",
    ],
)
def test_another_spelling_of_a_path_is_the_same_route_at_a_known_host(path: str):
    plain = routes.match("POST", "api.openai.com", "/v1/chat/completions")
    assert plain is not None
    assert routes.match("POST", "api.openai.com", path) == plain
    assert routes.match("POST", "forms.example", path) is None
    assert routes.match("GET", "api.openai.com", path) is None


READERS = {"get": 0, "lookup": 1, "object_at": 1, "objects_at": 1}
"""Where each takes the key, or the path."""
OF_NO_ANSWER = {"declined", "usageEvent", "completionEnd"}
"""A field that the ledger has beside a usage object, and members of what stands in base64."""


@for_each(
    "module",
    [
        path
        for path in sorted(Path(routes.__file__).parent.rglob("*.py"))
        if path.parent.name != "dialects" or path.stem in ("errors", "fetched", "local")
    ],
    ids=lambda path: path.stem,
)
def test_every_member_that_a_dialect_reads_is_read_of_a_long_answer(module: Path):
    keys: set[str] = set()
    for call in ast.walk(ast.parse(module.read_text())):
        if isinstance(call, ast.Call):
            at = READERS.get(getattr(call.func, "attr", getattr(call.func, "id", "")), 9)
            for argument in call.args[at : at + 1]:
                if isinstance(argument, ast.Constant):
                    keys.update(filter(str.isidentifier, str(argument.value).split(".")))
    assert keys - OF_NO_ANSWER <= routes.answer_keys()
