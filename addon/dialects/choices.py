"""Pure. Usage that a stream states choice by choice: it is added up, by index.

vLLM, SGLang    running usage on every chunk (`continuous_usage_stats`): of the chunk's choice alone
llama.cpp       each prompt, and each choice of `n`, ends with its own usage: on its last chunk
                (`/v1/completions`, `/completion`), or in an extra chunk behind it (chat)
TGI             each prompt of `/v1/completions` ends with its own usage

The choices of one prompt state the same input, which counts once; `AnswerContext.choices` is their
number. An extra chunk has no index: it belongs to the choice that finished last. The first one is
taken for the total of all choices, as OpenAI means it, until one comes after another choice's end.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from addon.dialects.counts import object_at
from addon.dialects.facts import Facts
from ledger.model.usage import count_of, sum_of

CHOICES_MAX = 1_024
"""Choices of one answer that are told apart; the usage of a later index replaces what there is.
OpenAI allows 128 choices of a prompt."""
_COUNTS_MAX = 64
"""Counts of one usage object that are added up; the longest known one has 30."""
_OF_OUTPUT = ("completion", "output", "reasoning", "predicted", "tokens_predicted")
"""How the names of those counts begin that each choice of a prompt has of its own."""
_TOTAL, _PROMPT = ("total_tokens",), ("prompt_tokens",)

type Path = tuple[str, ...]


def index_of(choice: Mapping[str, Any]) -> int | None:
    """The index of a choice; None: it has none that is known."""
    index = choice.get("index", 0)
    return index if type(index) is int and 0 <= index < CHOICES_MAX else None


def finish(facts: Facts, choice: Mapping[str, Any]) -> None:
    """Note that a choice is over."""
    index = index_of(choice)
    if index is not None:
        facts.rare.choices.finished.pop(index, None)
        facts.rare.choices.finished[index] = None


def all_finished(facts: Facts) -> bool:
    """Whether as many choices are over as the request asked for."""
    return len(facts.rare.choices.finished) >= min(facts.of.prompts * facts.of.choices, CHOICES_MAX)


def record_usage(facts: Facts, usage: dict[str, Any], indexes: list[int | None]) -> None:
    """Keep the usage of a frame with the choices of these indexes; [] is an extra chunk."""
    seen = facts.rare.choices
    index = indexes[0] if indexes else next(reversed(seen.finished), 0)
    is_extra = not indexes
    if index is None or len(indexes) > 1 or (is_extra and seen.extra_of in (None, index)):
        seen.by_choice.clear()
    if is_extra:
        seen.extra_of = index
    seen.by_choice[index or 0] = dict(_counts(facts.plain_usage(usage)))
    if len(seen.by_choice) > 1:
        usage = _added(seen.by_choice, usage, facts.of.choices if facts.of.prompts > 1 else None)
    facts.record_usage(usage, final=all_finished(facts) or (is_extra and not seen.finished))


def _counts(usage: Mapping[str, Any]) -> Iterator[tuple[Path, int]]:
    """The counts of a usage object and of the objects in it."""
    for key, value in list(usage.items())[:_COUNTS_MAX]:
        inner = value.items() if isinstance(value, dict) else ()
        for name, number in list(inner)[:_COUNTS_MAX]:
            if (count := count_of(number)) is not None:
                yield (key, name), count
        if (count := count_of(value)) is not None:
            yield (key,), count


def _added(
    by_choice: Mapping[int, Mapping[Path, int]], latest: Mapping[str, Any], choices: int | None
) -> dict[str, Any]:
    """The sum of the choices' counts; other values are the latest."""
    sums: dict[Path, int | None] = {}
    prompts = set[int]()
    for index, counts in by_choice.items():
        prompt = index // choices if choices else 0
        is_further = prompt in prompts
        prompts.add(prompt)
        for path, count in counts.items():
            further = count
            if path == _TOTAL:
                further = max(count - counts.get(_PROMPT, 0), 0)
            elif not any(key.startswith(_OF_OUTPUT) for key in path):
                further = 0
            sums[path] = sum_of(sums.get(path), further if is_further else count)
    total: dict[str, Any] = {**latest}
    for path, number in sums.items():
        if len(path) == 1:
            total[path[0]] = number
        else:
            total[path[0]] = {**(object_at(total, path[0]) or {}), path[1]: number}
    return total
