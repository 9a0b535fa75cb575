"""Pure. The hold of a request: what it can cost at most.

    input     the bytes of the request, and an allowance for what a provider adds; a picture counts
              its published maximum; never more than the model's window, which also bounds input
              that does not stand in the request as text
    output    the request's own limit, else the model's, for each answer that is asked for
    searches  each may fill the window once more

at the dearest price that can apply to it, of all sheets that may price it.
"""

from collections.abc import Iterable

from addon.caps.limits import Limits, ModelLimits
from ledger.caps.caps import Amounts
from ledger.pricing.price_lines import INPUT_LINES, OUTPUT_LINES, Rate, Sheet
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
SEARCH_LINES = ("web_searches", "web_search_previews", "file_searches")
_MEDIA_WORDS = ("audio", "image", "video", "search")
_LONG_LINES = ("cache_write_1h", "cache_write_12h")


def tokens_of(
    limits: Limits, model: ModelLimits, *, provider: str, is_embedding: bool = False
) -> tuple[int, int, str]:
    """The most tokens in and out, or why there is no bound."""
    if limits.unbounded:
        return 0, 0, limits.unbounded
    output = 0 if is_embedding else limits.output_tokens or model.output
    if output and not is_embedding:
        output = max(output, OUTPUT_TOKENS_MIN)
    if output is None:
        return 0, 0, "neither the request nor a published limit of its model bounds its output"
    if not limits.is_whole or limits.searches:
        if model.context is None:
            what = "searches" if limits.is_whole else "input that is not text, or not in it"
            return 0, 0, f"it has {what}, and the window of its model is not known"
        return model.context * (1 + limits.searches), output * limits.answers, ""
    pictures = limits.pictures * PICTURE_TOKENS_MAX.get(provider, ANY_PICTURE_TOKENS_MAX)
    taken = limits.input_bytes + ADDED_TOKENS_MAX + pictures
    return min(taken, model.context or taken), output * limits.answers, ""


def cost_of(
    limits: Limits, tokens: tuple[int, int], sheet: Sheet, *, at_list: bool = False
) -> tuple[int, str]:
    """The most that these tokens cost in pico-USD, by one sheet of prices, or why there is no
    bound. `at_list`: the list value is asked for, whatever the bill is."""
    if sheet.partial:
        return 0, sheet.partial[0]
    if sheet.bill == REPORTED_BILL and not at_list:
        return 0, "the provider bills its own figure, which no list bounds"
    taken, given = tokens
    has_media = bool(limits.pictures) or not limits.is_whole
    total = 0
    for count, lines, needed in (
        (taken, INPUT_LINES, "uncached_input"),
        (given, OUTPUT_LINES, "output"),
    ):
        if not count:
            continue
        if sheet.rate(needed) is None:
            return 0, sheet.absent or f"no price of {needed} is known"
        rates = [
            rate
            for line in lines
            if (rate := sheet.rate(line)) is not None
            if line not in _LONG_LINES or limits.is_kept_long
            if has_media or lines is OUTPUT_LINES or not line.endswith(_MEDIA_WORDS)
        ]
        if unknown := next((rate for rate in rates if rate.is_unknown), None):
            return 0, unknown.note or "a price is not known"
        total += max(_dearest(rate, taken) * max(count, rate.at_least) for rate in rates)
    if (fee := sheet.rates.get("requests")) is not None:
        total += fee.picousd
    if limits.searches:
        fees = [rate.picousd for line in SEARCH_LINES if (rate := sheet.rate(line)) is not None]
        if not fees:
            return 0, "no price of a search is known"
        total += limits.searches * max(fees)
    return total, ""


def hold_of(
    limits: Limits,
    model: ModelLimits,
    sheets: Iterable[Sheet],
    *,
    provider: str,
    is_embedding: bool,
    is_covered: bool,
) -> tuple[Amounts, str]:
    """The amounts to hold; None where there is no bound, and why."""
    taken, given, why = tokens_of(limits, model, provider=provider, is_embedding=is_embedding)
    if why:
        return Amounts(0 if is_covered else None, None, None, 1), why
    usd: int | None = 0
    listed: int | None = 0
    for sheet in sheets:
        if not is_covered and usd is not None:
            amount, trouble = cost_of(limits, (taken, given), sheet)
            usd, why = (None, trouble) if trouble else (max(usd, amount), why)
        if listed is not None:
            amount, trouble = cost_of(limits, (taken, given), sheet, at_list=True)
            listed, why = (None, why or trouble) if trouble else (max(listed, amount), why)
    return Amounts(usd, listed, taken + given, 1), why


def _dearest(rate: Rate, input_tokens: int) -> int:
    """The dearest unit of a rate for a request of up to so many input tokens."""
    return max(rate.picousd, *(unit for above, unit in rate.above if input_tokens > above), 0)
