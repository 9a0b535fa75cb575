"""The clients: how each is installed, what it runs, and what is known about it."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
KEYS = {
    "OPENAI_API_KEY": "sk-made-up-0123456789abcdef0123456789abcdef",
    "CODEX_API_KEY": "sk-made-up-0123456789abcdef0123456789abcdef",
    "ANTHROPIC_API_KEY": "sk-ant-made-up-0123456789abcdef0123456789",
    "GEMINI_API_KEY": "AIzaMadeUp0123456789abcdef0123456789abc",
}
CLAUDE_LOGIN = "sk-ant-oat01-made-up-0123456789abcdef0123456789"


def _token(claims: dict[str, object]) -> str:
    """A JSON web token that nobody signed."""
    parts: tuple[dict[str, object], ...] = ({"alg": "none", "typ": "JWT"}, claims, {})
    texts = (json.dumps(part).encode() for part in parts)
    return ".".join(base64.urlsafe_b64encode(text).decode().rstrip("=") for text in texts)


_ACCOUNT = "7f9d0c2e-0000-4000-8000-000000000001"
_CLAIMS: dict[str, object] = {
    "email": "nobody@example.com",
    "exp": int(time.time()) + 864_000,
    "https://api.openai.com/auth": {
        "chatgpt_plan_type": "pro",
        "chatgpt_account_id": _ACCOUNT,
        "chatgpt_user_id": "user-1",
    },
}
CODEX_LOGIN = json.dumps(
    {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": _token(_CLAIMS),
            "access_token": _token(_CLAIMS),
            "refresh_token": "rt-made-up",
            "account_id": _ACCOUNT,
        },
        "last_refresh": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
)
GOOGLE_KEY = {"GOOGLE_API_KEY": KEYS["GEMINI_API_KEY"]}
CHAT = "https://api.openai.com/v1/chat/completions"
BODY = '{"model":"gpt-4o","messages":[{"role":"user","content":"Hi"}]}'


@dataclass(frozen=True, kw_only=True)
class Client:
    """One row of the table."""

    name: str
    packages: tuple[str, ...] = ()
    """From the package index; empty: what the machine or the dev group has."""
    program: str = ""
    """A file of `programs`."""
    arguments: tuple[str, ...] = ()
    """Of the program, or the whole command if there is none."""
    node: str = ""
    """The Node.js to run on, by major version; `system` for the machine's."""
    shares: str = ""
    """Uses the installation of that client."""
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """In its home."""
    seconds: int = 180
    """As long as it may take on a busy machine; an import of a large SDK takes 30 s then."""
    is_fast: bool = False
    """Part of the default test run."""
    is_sdk: bool = False
    """Takes seconds to import. By default it runs behind `tokentee run`, and in
    `tests/proxy/test_sdks.py` behind mitmdump."""
    calls: int = 1
    """LLM calls that it makes, at least."""
    plan: str = ""
    """The provider whose flat plan it is logged in to."""
    session: bool = False
    """Its wire tells a session."""
    why_not: str = ""
    """Why it goes past the recorder. The run must say so."""
    goes_past_in: tuple[str, ...] = ()
    """Where it connects directly; with `mitmdump` alone, older Node.js does."""
    behind_mitmdump: tuple[str, ...] = ()
    """Headers that it sends its server behind any proxy, and that mitmdump, unlike `run`, leaves."""
    refusals: int = 0
    """Requests that it sends under a cap that refuses all; 0: it is not played under one."""
    keeps_home: bool = False
    """Its home is kept in `homes`, beside the ledger."""
    volatile: tuple[str, ...] = ()
    """Patterns of its own output or requests that differ from run to run."""

    @property
    def is_python(self) -> bool:
        return self.program.endswith(".py")

    @property
    def is_node(self) -> bool:
        return bool(self.node)


def _python(name: str, *packages: str, calls: int, **more: object) -> Client:
    program = more.pop("program", f"{name.replace('-', '_')}_python.py")
    return Client(name=f"{name} (Python)", packages=packages, program=program, calls=calls, **more)  # type: ignore[arg-type]


def _fetch(version: str, **more: object) -> Client:
    return Client(
        name=f"fetch, https (Node {version})",
        packages=(f"node@{version}",) if version != "system" else (),
        program="fetch.mjs",
        node=version,
        calls=3,
        goes_past_in=PAST_BY_HAND if version in ("18", "system") else (),
        **more,  # type: ignore[arg-type]
    )


def _gateway(
    name: str, port: int, path: str, *command: str, calls: int = 2, **more: object
) -> Client:
    asked = json.loads(BODY) | ({"max_tokens": 99} if path == "/v1/messages" else {})
    bodies = json.dumps([asked | {"stream": stream} for stream in (False, True)[:calls]])
    program = str(PROGRAMS / "gateway.py")
    words = ("python3", program, str(port), path, bodies, *command)
    return Client(name=name, arguments=words, calls=calls, **more)  # type: ignore[arg-type]


LITELLM = """\
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY}
"""
ROUTER = json.dumps(
    {
        "Providers": [
            {
                "name": "openai",
                "api_base_url": CHAT,
                "api_key": KEYS["OPENAI_API_KEY"],
                "models": ["gpt-4o"],
            }
        ],
        "Router": {"default": "openai,gpt-4o"},
    }
)
OPENCODE_IDS = (r"(ses|msg|prt)_\w+",)
PAST_BY_HAND = ("mitmdump",)
AIOHTTP = (
    "reads no proxy variable unless the program says `trust_env=True`; no variable changes that. "
    "`tokentee run` says that it went past"
)

CLIENTS = (
    _python("requests", calls=2, is_fast=True),
    _python("httpx", calls=2, is_fast=True),
    _python("openai", calls=3, is_fast=True, is_sdk=True, refusals=1),
    _python("anthropic", calls=2, is_sdk=True, refusals=1),
    _python("google-genai", calls=2, is_sdk=True, refusals=1),
    Client(
        name="curl",
        arguments=("curl", "-sS", "-H", "content-type: application/json", "-d", BODY, CHAT),
        is_fast=True,
    ),
    Client(
        name="git",
        arguments=("git", "ls-remote", "https://git.example/repository.git"),
        is_fast=True,
        calls=0,
    ),
    Client(
        name="wget",
        arguments=("sh", "-c", "wget -qO- https://other.example/page && wget -qO- "
                   f"--header=content-type:application/json --post-data='{BODY}' {CHAT}"),
        is_fast=True,
        behind_mitmdump=("proxy-connection",),
    ),
    _fetch("system", is_fast=True),
    _python("litellm", "litellm", calls=6, refusals=1),
    _python("langchain-openai", "langchain-openai", calls=2, refusals=1),
    _python("langchain-anthropic", "langchain-anthropic", calls=2, refusals=1),
    _python("pydantic-ai", "pydantic-ai-slim[openai,anthropic,google]", calls=6,
            environment=GOOGLE_KEY, refusals=1),
    _python("openai-agents", "openai-agents", calls=2, refusals=1),
    _python("instructor", "instructor", calls=1, refusals=1),
    Client(
        name="llm (command)",
        refusals=1,
        packages=("llm",),
        arguments=("llm", "-m", "gpt-4o-mini", "Hi"),
    ),
    _python("aiohttp", "aiohttp", calls=1, why_not=AIOHTTP,
            goes_past_in=("run", "mitmdump")),
    _python("aiohttp, trust_env", calls=1, program="aiohttp_python.py", arguments=("trust",),
            shares="aiohttp (Python)"),
    _fetch("18"),
    _fetch("22"),
    _fetch("24"),
    Client(name="openai (Node)", packages=("openai",), program="openai_node.mjs", node="system",
           goes_past_in=PAST_BY_HAND,
           calls=3, refusals=1),
    Client(name="@anthropic-ai/sdk", packages=("@anthropic-ai/sdk",), program="anthropic_node.mjs",
           node="system",
           goes_past_in=PAST_BY_HAND, calls=2, refusals=1),
    Client(name="@google/genai", packages=("@google/genai",), program="google_genai_node.mjs",
           node="system",
           goes_past_in=PAST_BY_HAND, calls=2, refusals=1),
    Client(name="@ai-sdk/openai", packages=("ai", "@ai-sdk/openai", "@ai-sdk/anthropic",
           "@ai-sdk/google"), program="ai_node.mjs", arguments=("openai", "gpt-4o"),
           node="22", calls=2, refusals=1),
    Client(name="@ai-sdk/anthropic", shares="@ai-sdk/openai", program="ai_node.mjs",
           arguments=("anthropic", "claude-sonnet-4-5"), node="22", calls=2, refusals=1),
    Client(name="@ai-sdk/google", shares="@ai-sdk/openai", program="ai_node.mjs",
           arguments=("google", "gemini-2.5-flash"), node="22", calls=2, refusals=1,
           environment={"GOOGLE_GENERATIVE_AI_API_KEY": KEYS["GEMINI_API_KEY"]}),
    Client(
        name="Claude Code",
        refusals=1,
        packages=("@anthropic-ai/claude-code",),
        arguments=("claude", "-p", "Say hi"),
        volatile=(r"cch=[0-9a-f]{5}",),
        node="22",
        session=True,
    ),
    Client(
        name="Claude Code, plan",
        refusals=1,
        shares="Claude Code",
        arguments=("claude", "-p", "Say hi"),
        environment={"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": CLAUDE_LOGIN},
        volatile=(r"cch=[0-9a-f]{5}",),
        node="22",
        plan="anthropic",
        session=True,
    ),
    Client(
        name="Codex",
        refusals=1,
        packages=("@openai/codex",),
        arguments=("codex", "exec", "--skip-git-repo-check", "Say hi"),
        node="22",
        session=True,
    ),
    Client(
        name="Codex, plan",
        refusals=1,
        shares="Codex",
        arguments=("codex", "exec", "--skip-git-repo-check", "Say hi"),
        environment={"OPENAI_API_KEY": "", "CODEX_API_KEY": ""},
        files={".codex/auth.json": CODEX_LOGIN},
        node="22",
        plan="openai",
        session=True,
    ),
    Client(
        name="Gemini CLI",
        refusals=2,  # of the model that chooses a model, and of the one that answers
        packages=("@google/gemini-cli",),
        arguments=("gemini", "--skip-trust", "-p", "Say hi"),
        node="22",
        files={".gemini/settings.json":
               '{"security":{"auth":{"selectedType":"gemini-api-key"}}}'},
    ),
    Client(
        name="OpenCode, OpenAI",
        refusals=2,  # of the model that names the session, and of the one that answers
        packages=("opencode-ai",),
        arguments=("opencode", "run", "-m", "openai/gpt-4o", "Say hi"),
        volatile=OPENCODE_IDS,
        node="22",
        session=True,
    ),
    Client(
        name="OpenCode, Anthropic",
        refusals=2,
        shares="OpenCode, OpenAI",
        arguments=("opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "Say hi"),
        volatile=OPENCODE_IDS,
        node="22",
        session=True,
    ),
    _gateway("LiteLLM, gateway", 4140, "/v1/chat/completions",
             "litellm", "--config", ".litellm.yaml", "--port", "4140",
             packages=("litellm[proxy]",), files={"work/.litellm.yaml": LITELLM},
             environment={"LITELLM_MASTER_KEY": KEYS["OPENAI_API_KEY"]}),
    _gateway("Portkey, gateway", 4142, "/v1/chat/completions",
             "gateway", "--port=4142", "--headless", packages=("@portkey-ai/gateway",),
             node="22", calls=1),  # 1.15.2 answers 500 to a stream of this upstream, without us, too
    _gateway("claude-code-router", 3456, "/v1/messages", "ccr", "start",
             packages=("@musistudio/claude-code-router",), node="22",
             files={".claude-code-router/config.json": ROUTER}),
)  # fmt: skip

CAPPED = (
    *(client for client in CLIENTS if client.refusals),
    *(
        _python(f"{name}, {model}", program=f"{name.replace('-', '_')}_python.py", calls=2,
                arguments=(model,), shares=f"{name} (Python)", environment=GOOGLE_KEY, refusals=1)
        for name, models in {
            "litellm": ("anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"),
            "pydantic-ai": ("anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash"),
        }.items()
        for model in models
    ),
)  # fmt: skip
"""Those that are played under a cap: some once for each provider."""
