"""Pure. Models of a cloud's bill, found among those of the ledger.

A cloud spells models in words of its own: `Claude4.6Opus`, `gpt 4o 0806 Inp glbl Tokens`. A row of
`NAME_PATTERNS` takes out of a name what is not the model. What is left is compared as words in any
order, and numbers in their order. A name that no model of the ledger has stays a row of its own.
Meters name less than a model (`5.4 inp Gl`, for `gpt-5.4`), so those that are not certain are one
row, with the models of the ledger that no meter names.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ledger.parts.reconcile.statement import Line

UNMATCHED = "models that no meter names for certain"

type Words = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of a name, sorted, and its numbers in their order: gpt-4.5 is not gpt-5.4."""


class NamePattern(NamedTuple):
    """What is no part of a model, in the ledger's names and in those of a bill."""

    provider: str
    pattern: re.Pattern[str]
    by: str
    source: str


_AWS, _AZURE = "aws.bedrock", "azure.ai.openai"
_CUR = "https://docs.aws.amazon.com/bedrock/latest/userguide/cost-mgmt-understanding-cur-data.html"
_IDS = "https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html"
_METERS = "https://prices.azure.com/api/retail/prices, meters of Foundry Models"
NAME_PATTERNS = (
    # arn:…/us.anthropic.claude-opus-4-6-v1:0
    NamePattern(_AWS, re.compile(r"^.*/"), "", _IDS),
    NamePattern(_AWS, re.compile(r"^(?:us|eu|apac|jp|au|ca|global|us-gov)\.(?=[a-z])"), "", _IDS),
    NamePattern(
        _AWS,
        re.compile(r"^(?:ai21|amazon|anthropic|cohere|meta|mistral|openai|qwen|writer)\.(?=[a-z])"),
        "",
        _IDS,
    ),
    NamePattern(_AWS, re.compile(r"[-:]v1(?::\d+)?$|-1:\d+$|(?<=-v\d):\d+$"), "", _IDS),
    NamePattern(_AWS, re.compile(r"-20\d{6}(?=$|-)"), "", _IDS),
    # Claude3.5Sonnetv2, NovaPro, Nova2.0Lite, Llama3-3-70B
    NamePattern(_AWS, re.compile(r"v(?=\d+$)"), " v", _CUR),
    NamePattern(_AWS, re.compile(r"nova(?=[a-z])"), "nova ", _CUR),
    NamePattern(_AWS, re.compile(r"(?<=nova\d)\.0"), "", _CUR),
    NamePattern(_AWS, re.compile(r"-instruct$"), "", _CUR),
    # gpt-4o-2024-08-06, gpt 4o 0806 cached Inp glbl 1M Tokens
    NamePattern(_AZURE, re.compile(r"-20\d\d-\d\d-\d\d$"), "", _METERS),
    NamePattern(_AZURE, re.compile(r"(?<=[ -])(?:0[1-9]|1[0-2])[0-3]\d(?=[ -])"), "", _METERS),
    NamePattern(
        _AZURE,
        re.compile(
            r"(?<![a-z0-9])(?:inpt?|input|outp?t?|output|opt|c*ched|c*chd|cached|cd|wr|batch|pp"
            r"|gl|glbl|global|regnl|regional|dz|dzone|data zone|std|1[mk]|tokens?)(?![a-z0-9])"
        ),
        " ",
        _METERS,
    ),
)
"""Applied in this order to names in lower case. Pages read 2026-11-28."""

_NONE: Words = ((), ())
_WORD = re.compile(r"[a-z]+|[0-9]+")
_IS_METER = re.compile(r"\b(?:in|inpt?|input|out|outpt?|output|opt|tokens?)\b", re.I)


def words_of(provider: str, name: str) -> Words:
    """What a name says about the model."""
    text = name.lower().strip()
    for spelling in NAME_PATTERNS:
        if spelling.provider == provider:
            text = spelling.pattern.sub(spelling.by, text)
    found = _WORD.findall(text)
    words = sorted(word for word in found if word.isalpha())
    return tuple(words), tuple(number for number in found if number.isdigit())


def matched(
    provider: str | None, stated: Sequence[Line], ours: Iterable[str]
) -> tuple[list[Line], Mapping[str, str]]:
    """The lines of a bill under the ledger's names of their models, and the name that each of
    these models (`ours`) gets."""
    if provider is None or provider not in {spelling.provider for spelling in NAME_PATTERNS}:
        return [*stated], {}
    of_ours = {name: words_of(provider, name) for name in sorted(ours)}
    names = {words: name for name, words in reversed(of_ours.items()) if words != _NONE}
    theirs = [words_of(provider, name) if (name := _name(line)) else _NONE for line in stated]
    found = names.keys() & {*theirs}
    is_by_meters = not any(line.model for line in stated)
    if is_by_meters:
        # A meter or a model whose words go beyond may be another part of the same model.
        others = {*theirs, *of_ours.values()} - found
        found = {
            words for words in found if not any(_goes_beyond(other, words) for other in others)
        }
    if not found:
        return [*stated], {}
    rest = UNMATCHED if is_by_meters else None
    lines = []
    for line, words in zip(stated, theirs, strict=True):
        name = names[words] if words in found else rest if words != _NONE else None
        lines.append(line if name is None else replace(line, model=name, item=None))
    renamed = {
        name: names[words] if words in found else rest or name for name, words in of_ours.items()
    }
    return lines, renamed


def _goes_beyond(name: Words, other: Words) -> bool:
    """Whether a name is another one with more words or numbers behind it."""
    numbers = name[1][: len(other[1])]
    return name != other and numbers == other[1] and not Counter(other[0]) - Counter(name[0])


def _name(line: Line) -> str | None:
    """A model in the words of a bill; None: the line is about no model's tokens."""
    if line.model is not None or line.item is None:
        return line.model
    return line.item if _IS_METER.search(line.item) else None
