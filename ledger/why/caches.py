"""Pure. What is documented about providers' prompt caches.

Minimums: https://docs.litellm.ai/docs/completion/prompt_caching (2026-10-07), and for Claude 3 and
3.5 Haiku https://docs.orq.ai/docs/proxy/prompt-caching (read 2026-11-23). Lifetimes of five minutes
since the last use and of an hour (Anthropic): https://portkey.ai/docs/aigw/integrations/llms/
anthropic/prompt-caching (read 2026-11-23). Steps of 128 tokens: OpenAI's guide to prompt caching.
"""

from datetime import timedelta
from typing import NamedTuple

HOUR = timedelta(hours=1)
MINUTES = timedelta(minutes=5)


class Cache(NamedTuple):
    """How a model's prompts are cached."""

    tokens_min: int
    """A shorter prefix is not cached."""
    step: int = 128
    """Cached tokens are counted in steps of so many."""
    is_explicit: bool = False
    """Only prefixes up to a breakpoint are cached."""
    lifetime: timedelta = HOUR
    """Since the last use. Where none is documented for sure, the longest that any provider states:
    a shorter gap is no explanation."""


_MINIMUMS = (
    ("claude-opus-5", 512),
    ("claude-fable-5", 512),
    ("claude-mythos-5", 512),
    ("claude-opus-4-5", 4096),
    ("claude-opus-4-6", 4096),
    ("claude-haiku-4-5", 4096),
    ("claude-3-haiku", 2048),
    ("claude-3-5-haiku", 2048),
)
"""Parts of a model's name -> tokens, the first that fits."""


def cache_of(dialect: str, model: str | None) -> Cache:
    """The cache that applies to a request."""
    name = (model or "").lower().replace(".", "-")
    if dialect.startswith("anthropic") or "claude" in name:
        least = next((tokens for part, tokens in _MINIMUMS if part in name), 1024)
        return Cache(least, step=1, is_explicit=True, lifetime=MINUTES)
    return Cache(1024)
