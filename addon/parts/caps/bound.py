"""Pure. The hold of a request: what it can cost at most.

    input     what an earlier turn took (`turns.py`), the bytes of what is new, and an allowance for
              what a provider adds; a picture counts its published maximum; never more than the
              model's window, which also bounds input that does not stand in the request as text
    output    the request's own limit, else the model's, for each answer that is asked for
    searches  each may fill the window once more

at the dearest price that can apply to it, of all sheets that may price it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from addon.parts.caps.limits import Limits, ModelLimits
from ledger.parts.budgets.caps import Amounts
from ledger.pricing.price_lines import INPUT_LINES, OUTPUT_LINES, Sheet
from ledger.pricing.rules import REPORTED_BILL

ADDED_TOKENS_MAX = 2_048
"""What a provider adds to the text of a request: its own prompts for tools, up to 1 300 tokens
(https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing), and the dates and
instructions of others."""
PICTURE_TOKENS_MAX = {"anthropic": 4_784}
"""Of one picture (https://platform.claude.com/docs/en/build-with-claude/vision)."""
ANY_PICTURE_TOKENS_MAX = 50_000
"""gpt-4o-mini counts the most, 2 833 + 8 x 5 667
(https://platform.openai.com/docs/guides/images-vision#calculating-costs)."""
OUTPUT_TOKENS_MIN = 16
"""Some raise a lower limit to this one (`max_output_tokens` of OpenAI's Responses)."""
BILLED_APART = "the provider bills an amount of its own, which list prices do not limit"
SEARCH_LINES = ("web_searches", "web_search_previews", "file_searches")
_MEDIA_WORDS = ("audio", "image", "video", "search")
_LONG_LINES = ("cache_write_1h", "cache_write_12h")


def picture_tokens_of(provider: str) -> int:
    """The most tokens of one picture."""
    return PICTURE_TOKENS_MAX.get(provider, ANY_PICTURE_TOKENS_MAX)


def tokens_of(
    limits: Limits,
    model: ModelLimits,
    *,
    provider: str,
    is_embedding: bool = False,
    by_turn: int | None = None,
) -> tuple[int, int, str]:
    """The most tokens in and out, or why there is no bound. `by_turn`: those in, as an earlier
    turn bounds them."""
    if limits.unbounded:
        return 0, 0, limits.unbounded
    if model.works_by_itself:
        return 0, 0, "its model works by itself as long as it likes (searches, further models)"
    output = 0 if is_embedding else limits.output_tokens or model.output
    if output and not is_embedding:
        output = max(output, OUTPUT_TOKENS_MIN)
    if output is None:
        return (
            0,
            0,
            "its output has no limit: the request states none, and none is published for its model",
        )
    bounds = [by_turn] if by_turn is not None and model.context else []
    if limits.is_whole:
        bounds.append(limits.input_bytes + limits.pictures * picture_tokens_of(provider))
    if limits.searches or not bounds:
        if model.context is None:
            what = "searches" if limits.is_whole else "input that is not text or not in the request"
            return 0, 0, f"it has {what}, and the context window of its model is not known"
        return model.context * (1 + limits.searches), output * limits.answers, ""
    taken = min(bounds) + ADDED_TOKENS_MAX
    return min(taken, model.context or taken), output * limits.answers, ""


class Dearest(NamedTuple):
    """The dearest prices of one sheet that can apply to a kind of request."""

    taken: tuple[tuple[int, int], ...] = ()
    """(input tokens, pico-USD), both ascending: what a token in costs above so many of them."""
    given: tuple[tuple[int, int], ...] = ()
    fee: int = 0
    search: int | None = None
    trouble: str = ""
    """Why there is no bound."""
    no_taken: str = ""
    """Why there is none if there is input; and output."""
    no_given: str = ""
    is_billed_apart: bool = False
    """The provider bills its own figure, which no list bounds."""


def dearest_of(sheet: Sheet, *, has_media: bool, is_kept_long: bool) -> Dearest:
    """The dearest prices of a sheet."""
    if sheet.partial:
        return Dearest(trouble=sheet.partial[0])
    steps: list[tuple[tuple[int, int], ...]] = []
    missing: list[str] = []
    for lines, needed in ((INPUT_LINES, "uncached_input"), (OUTPUT_LINES, "output")):
        rates = [
            rate
            for line in lines
            if (rate := sheet.rate(line)) is not None
            if line not in _LONG_LINES or is_kept_long
            if has_media or lines is OUTPUT_LINES or not line.endswith(_MEDIA_WORDS)
        ]
        unknown = next(
            (rate.note or "a price is not known" for rate in rates if rate.is_unknown), ""
        )
        if sheet.rate(needed) is None:
            unknown = sheet.absent or f"no price of {needed} is known"
        missing.append(unknown)
        every = sorted((-1, rate.picousd) for rate in rates)
        every += sorted(step for rate in rates for step in rate.above)
        found: list[tuple[int, int]] = []
        for above, unit in every:
            if not found or unit > found[-1][1]:
                found.append((above, unit))
        steps.append(tuple(found))
    fee = sheet.rates.get("requests")
    searches = [rate.picousd for line in SEARCH_LINES if (rate := sheet.rate(line)) is not None]
    return Dearest(
        taken=steps[0],
        given=steps[1],
        fee=fee.picousd if fee is not None else 0,
        search=max(searches, default=None),
        no_taken=missing[0],
        no_given=missing[1],
        is_billed_apart=sheet.bill == REPORTED_BILL,
    )


def cost_of(dearest: Dearest, taken: int, given: int, searches: int = 0) -> tuple[int, str]:
    """The most that these tokens cost in pico-USD, or why there is no bound."""
    trouble = dearest.trouble or (taken and dearest.no_taken) or (given and dearest.no_given) or ""
    if trouble:
        return 0, trouble
    if searches and dearest.search is None:
        return 0, "no price of a search is known"
    total = dearest.fee + searches * (dearest.search or 0)
    for count, steps in ((taken, dearest.taken), (given, dearest.given)):
        unit = 0
        for above, dearer in steps:
            if taken > above:
                unit = dearer
        total += count * unit
    return total, ""


def hold_of(
    limits: Limits,
    tokens: tuple[int, int, str],
    prices: Iterable[Dearest],
    *,
    is_covered: bool,
) -> tuple[Amounts, str]:
    """The amounts to hold; None where there is no bound, and why."""
    taken, given, why = tokens
    if why:
        return Amounts(0 if is_covered else None, None, None, 1), why
    most, is_billed_apart = 0, False
    for dearest in prices:
        amount, why = cost_of(dearest, taken, given, limits.searches)
        if why:
            return Amounts(0 if is_covered else None, None, taken + given, 1), why
        most = max(most, amount)
        is_billed_apart |= dearest.is_billed_apart
    if is_covered:
        return Amounts(0, most, taken + given, 1), ""
    if is_billed_apart:
        return Amounts(None, most, taken + given, 1), BILLED_APART
    return Amounts(most, most, taken + given, 1), ""
