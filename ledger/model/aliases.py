"""Pure. Whether another model answered than was asked for, and names that leave the choice.

A dated snapshot is its model, and so is a name that a gateway, a region or a file wrote otherwise.
Names that their provider leads elsewhere are rows of `ALIASES`, with their source. What is left is
another model.
"""

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

NAMES_MAX = 4_096
"""Names of models come from clients and upstreams."""


class Alias(NamedTuple):
    """A name that its provider leads to another model."""

    asked: str
    """A glob of the requested name, in lower case, without a vendor before it."""
    answered: str
    source: str
    """A page, or `RECORDED`."""


RECORDED = "recorded answers of the provider itself"
"""Where no page that states it was found."""

ALIASES = (
    Alias("claude-*-4-0", "claude-*-4-2025*", RECORDED),
    Alias(
        "deepseek-[cr]*",
        "deepseek-v*",
        "https://dev.to/ahab_indieseek/deepseek-v4-api-migration-before-july-24-42b4",
    ),
    Alias(
        "gemini-3-pro-preview",
        "gemini-3.1-pro-preview",
        "https://modelslab.com/blog/api/gemini-3-pro-preview-deprecated-march-9-what-developers-are-switching-to",
    ),
    Alias("gemini-2.0-flash-thinking-exp*", "gemini-2.5-flash*", RECORDED),
    Alias(
        "gpt-4-turbo-preview",
        "gpt-4-0125-preview",
        "https://developers.openai.com/api/docs/models/gpt-4-turbo-preview.md",
    ),
    Alias(
        "gpt-5.6",
        "gpt-5.6-sol*",
        "https://developers.openai.com/api/docs/guides/upgrading-to-gpt-5p6-sol.md",
    ),
    Alias("grok-*-fast", "grok-*-fast-reasoning", "https://promptfoo.dev/docs/providers/xai"),
    Alias("grok-3-mini", "grok-3-mini-high", RECORDED),
    Alias("grok-[34]*", "grok-4.3", "https://docs.x.ai/docs/migration/may-15-retirement"),
    Alias("*llama-*-instruct", "*llama-*-instruct-turbo", RECORDED),
    Alias(
        "pixtral-12b*",
        "ministral-14b*",
        "https://github.com/braintrustdata/braintrust-proxy/issues/1005",
    ),
)
"""Pages read 2026-11-23. A retired model is followed by the one that its provider names."""

_DEPLOYMENTS = ("azure", "arn:")
"""On Azure and SageMaker the operator names a deployment, which says nothing about its model."""
_VENDORS = re.compile(r"^(?:[a-z-]+\.)+(?=[a-z])")
"""`us.anthropic.` before a model of Bedrock."""
_DATE = re.compile(
    r"(?<![0-9])(?:20\d\d-\d\d-\d\d|20\d{6}|2[3-9](?:0[1-9]|1[0-2])"
    r"|(?:0[1-9]|1[0-2])-?(?:[012]\d|3[01]))(?![0-9])"
)
"""2025-04-14, 20250414, 2411, 0613, 05-20."""
_DEPLOYED = re.compile(r"[-:]v\d(?::\d)?$")
"""The version of what is deployed, `-v1:0`: it is the same model if only one name has it."""
_VERSION = re.compile(r"(?<=-)00\d$|(?<=-)\d+k(?=-|$)")
"""`-001`, and the length of the context, `-28k`."""
_TOKEN = re.compile(r"[a-z]+|[0-9]+")
_SAME = frozenset(
    ("latest", "preview", "exp", "beta", "instruct", "gguf", "it", "free", "meta", "databricks")
)
"""Words that make no other model."""


@lru_cache(maxsize=NAMES_MAX)
def is_another(provider: str, asked: str | None, answered: str | None) -> bool:
    """Whether the model that answered is another one than was asked for."""
    if not asked or not answered or asked == answered:
        return False
    if provider.startswith(_DEPLOYMENTS) or asked.startswith(_DEPLOYMENTS):
        return False
    ours, theirs = _bare(asked), _bare(answered)
    if any(
        fnmatchcase(ours, alias.asked) and fnmatchcase(theirs, alias.answered) for alias in ALIASES
    ):
        return False
    if bool(_DEPLOYED.search(ours)) != bool(_DEPLOYED.search(theirs)):
        ours, theirs = _DEPLOYED.sub("", ours), _DEPLOYED.sub("", theirs)
    want, got = _words(ours), _words(theirs)
    if want == got:
        return False
    # A name without a number leaves the choice: a family (`gemini`), a router.
    is_open = not any(word.isdigit() for word in want)
    return not (is_open and (want <= got or is_router(asked)))


def is_router(name: str) -> bool:
    """Whether a name leaves the model to who serves it, anew for each request."""
    return bool({"auto", "router"} & set(_words(_bare(name))))


def words_of(name: str) -> frozenset[str]:
    """The words of a model's name that make it another model, without its numbers, and the letter
    of a version or a size (`v2`, `27b`)."""
    return frozenset(word for word in _words(_bare(name)) if word.isalpha() and len(word) > 1)


def _bare(name: str) -> str:
    """The name without what stands around it: vendor, folder, region, route."""
    name = name.lower().rpartition("/")[2]
    head, colon, tail = name.partition(":")
    if colon and not any(letter.isdigit() for letter in tail):
        name = head
    return _VENDORS.sub("", name.removesuffix(".gguf"))


def _words(name: str) -> Counter[str]:
    name = _VERSION.sub("", _DATE.sub("", name).rstrip("-: "))
    return Counter(word for word in _TOKEN.findall(name) if word not in _SAME)
