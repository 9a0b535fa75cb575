"""Pure. How an exchange is billed: by tokens, by a plan, or not at all, as the wire says it.

Never a guess: a credential of an unknown kind, or a host of no known provider, leaves it unknown.

    Claude        an OAuth token with the beta header `oauth-…` is a plan's (Claude Code 2), except
                  at the host of another provider; an API key is metered;
                  `anthropic-ratelimit-unified-overage-in-use: true` says that the plan is used up
                  and tokens are billed from credits; so is fast mode, which is in no plan
    Codex         the ChatGPT backend, `/backend-api/codex/`, which `x-codex-*` limits confirm
    Copilot       its own hosts
    Gemini        `cloudcode-pa.googleapis.com` is Code Assist, which is billed by the seat
    OpenRouter    models whose name ends in `:free`, if no other model answered; `openrouter/free`
    coding plans  paths that Z.ai, BigModel and Kimi keep for them, Alibaba's hosts, MiniMax' keys
"""

import re
from collections.abc import Mapping

from ledger.model.aliases import is_another
from ledger.model.exchange import Billing
from ledger.model.provider_table import TABLE

PLAN_HOSTS = (
    *("chatgpt.com", "githubcopilot.com", "cloudcode-pa.googleapis.com"),
    *("coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com"),
)
"""Hosts that no API key is for; a name matches its subdomains, too."""
_PLAN_ENDS = tuple(f".{host}" for host in PLAN_HOSTS)
CHATGPT_PATH = "/backend-api/codex/"
PLAN_PATHS = (CHATGPT_PATH, "/api/coding/")
"""Beginnings of paths that are for plans alone: of ChatGPT, of Z.ai and BigModel."""
KIMI, KIMI_PLAN_PATH = "kimi.com", "/coding/"
PLAN_KEYS = {"minimax": "sk-cp-"}
"""Provider -> how the keys of its plan begin."""
LOCAL = ("ollama",)
"""Providers of models that also run at home, where nobody bills them."""
OAUTH_BETA = "oauth-"
OAUTH_TOKEN = "sk-ant-oat"  # noqa: S105  # how such tokens begin
OVERAGE = "anthropic-ratelimit-unified-overage-in-use"
PLAN_LIMITS = frozenset(
    {
        "anthropic-ratelimit-unified-status",
        "x-codex-primary-used-percent",
        "x-codex-plan-type",
    }
)
"""Headers of answers that only plans get."""
FREE_MODEL, FREE_ROUTER = ":free", "openrouter/free"
SENT_KEY = "key"
"""Stands among redacted names for a key that the ledger knows was sent."""
KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key")
KEY_BEGINS = re.compile(
    r"(?i)(?:sk|pk|rk|ak|xai|gsk|hf|api|key|tok|ghp|gho|ghs|ghu|glpat|pat|aiza|ya29|eyj|akia|asia|"
    r"nvapi|r8|pplx|fw|csk|tgp|vck|jina|pa)[-_.]?"
)
"""How keys begin in the path of a URL."""
PROTOCOL_KEY = re.compile(r"openai-insecure-api-key\.([^\s,]+)")
"""Browsers cannot set WebSocket headers, so they send the key as a subprotocol."""
_KEYS = frozenset({SENT_KEY, "authorization", *KEY_HEADERS})


def of_request(
    headers: Mapping[str, str],
    *,
    host: str,
    path: str,
    provider: str,
    has_key: bool,
    redacted: frozenset[str] = frozenset(),
) -> Billing | None:
    """How a request is billed; None: it does not say. `headers` are by lower-case name; `redacted`
    are the names of others, whose values a recording does not keep."""
    host = host.lower().rstrip(".")
    if f".{host}".endswith(_PLAN_ENDS):
        return Billing.PLAN
    if path.startswith(PLAN_PATHS) or (host.endswith(KIMI) and path.startswith(KIMI_PLAN_PATH)):
        return Billing.PLAN
    is_elsewhere = provider != "anthropic" and TABLE.named(provider) is not None
    token = headers.get("authorization", "").partition(" ")[2]
    has_api_key = "x-api-key" in headers or "x-api-key" in redacted
    is_oauth = token.lstrip().startswith(OAUTH_TOKEN) or "authorization" in redacted
    is_oauth = is_oauth and OAUTH_BETA in headers.get("anthropic-beta", "")
    if is_oauth and not (is_elsewhere or has_api_key):
        return Billing.PLAN
    key = token or headers.get("x-api-key", "")
    if provider in PLAN_KEYS and key.startswith(PLAN_KEYS[provider]):
        return Billing.PLAN
    has_key = has_key or not redacted.isdisjoint(_KEYS)
    if has_key and provider not in LOCAL and TABLE.named(provider) is not None:
        return Billing.METERED
    return None


def of_answer(
    asked: Billing | None,
    headers: Mapping[str, str],
    *,
    provider: str,
    models: tuple[str | None, str | None] = (None, None),
    service_tier: str | None = None,
) -> tuple[Billing | None, bool]:
    """How an exchange is billed, and whether its answer says so for certain: then no file of the
    operator overrides it. `headers` are the answer's; `models` those of answer and request;
    `service_tier` is the one that served it."""
    if headers.get(OVERAGE, "").strip().lower() == "true":
        return Billing.METERED, True
    if provider == "anthropic" and service_tier == "fast":
        return Billing.METERED, True  # https://code.claude.com/docs/en/fast-mode
    if not PLAN_LIMITS.isdisjoint(headers):
        return Billing.PLAN, False
    answer, request = models
    if provider == "openrouter":
        # A fallback in `models` may be another model, which is billed
        # (https://openrouter.ai/docs/guides/routing/model-fallbacks).
        is_free = request == FREE_ROUTER or (answer or "").endswith(FREE_MODEL)
        if not is_free and request is not None and request.endswith(FREE_MODEL):
            # The answer may have the model's full name: qwen/qwen3-coder-480b-a35b-07-25.
            is_free = answer is None or answer.startswith(request.removesuffix(FREE_MODEL))
            is_free = is_free or not is_another(provider, request, answer)
        if is_free:
            return Billing.FREE, False
    return asked, False
