"""Pure. The billed lines of a reading: disjoint quantities, and the price of one unit of each.

The token lines of one reading are disjoint and add up to its `input_tokens` and `output_tokens`. A
provider reports a total and its parts, and parts can exceed the total (other tokenizers, stale
splits); then the total wins, the part is cut to the rest of it, and the line states the cut.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ledger.model.usage import Usage

INPUT_LINES = (
    *("uncached_input", "cache_read", "cache_write", "cache_write_5m", "cache_write_1h"),
    *("cache_write_12h", "input_audio", "input_image", "input_video", "cache_read_audio"),
    *("cache_read_image", "input_search"),
)
OUTPUT_LINES = (
    *("output", "reasoning", "output_audio", "output_image", "output_video", "output_decision"),
)
TOKEN_LINES = (*INPUT_LINES, *OUTPUT_LINES, "citation")
"""Citations are no part of the output tokens: Perplexity bills them beside."""


def is_token_line(line: str) -> bool:
    """Whether the line is priced per million; a further iteration's line follows a dot."""
    return line.rpartition(".")[2] in TOKEN_LINES


CONTAINED_UNITS = {
    "input_text_tokens": "uncached_input",
    "output_text_tokens": "output",
    "cache_read_text_tokens": "cache_read",
    "cache_write_12h_tokens": "cache_write_12h",
    "cache_write_24h_tokens": "cache_write",
    "input_image_tokens": "input_image",
    "input_video_tokens": "input_video",
    "input_document_tokens": "uncached_input",
    "cache_read_audio_tokens": "cache_read_audio",
    "cache_read_image_tokens": "cache_read_image",
    "output_image_tokens": "output_image",
    "output_video_tokens": "output_video",
    "output_document_tokens": "output",
    "input_search_tokens": "input_search",
    "output_decision_tokens": "output_decision",
}
"""`tool_units` that are part of the token totals -> their line. Every other unit is billed in
addition to the tokens, as a line of its own name, except the following."""

BILLED_TOTALS = {"billed_input_tokens": "input_tokens", "billed_output_tokens": "output_tokens"}
"""Cohere's invoice counts these and not the tokens that the model read and wrote; genai-prices does
so, too."""

BILLED_WHERE_PRICED = {
    "citation_tokens": "citation",
    "images": "images",
    "billed_image_tokens": "billed_image_tokens",
    "mcp_calls": "mcp_calls",
    "server_tool_calls": "server_tool_calls",
    "batch_results": "batch_results",
    "copilot_nano_aiu": "copilot_nano_aiu",
}
"""Unit -> line, of units that are reported for information: sums of other units, and units that
only some models bill. Without a price they give no charge instead of an unknown one."""
BILLED_ALONE = ("images", "billed_image_tokens")
"""Those of them that are billed where an answer has no tokens."""

NO_TIME = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
"""Always in force."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of one unit."""

    picousd: int
    source: str
    above: tuple[tuple[int, int], ...] = ()
    """(input tokens, picousd), ascending: a request with more input than that pays this price for
    all of its tokens, not only for those beyond (the vendors' rule; 200 000 and 272 000)."""
    note: str | None = None
    is_once: bool = False
    """Charged once per request, for any number of units."""
    at_least: int = 0
    """Units that are billed if the request has fewer."""
    is_unknown: bool = False
    """The line is billed apart, but its price is not known; `note` is the reason."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The prices of one model on one host and service tier, in force from `since` to `until`."""

    rates: Mapping[str, Rate]
    absent: str
    """Why a line that is not in `rates` has no price."""
    since: datetime = NO_TIME[0]
    until: datetime = NO_TIME[1]
    rest: Rate | None = None
    """The price of every other line: an entry declared free is free for all lines."""
    bill: str = ""
    """`reported`, or a unit: where the answer has it, it is the bill, whatever the lines cost."""
    partial: tuple[str, ...] = ()
    """Why the lines are only a part of the price: billing fields with values that no rule knows."""

    def rate(self, line: str) -> Rate | None:
        """The price of a line; None if none is known."""
        return self.rates.get(line, self.rest)


def input_tokens_of_one_request(usage: Usage) -> int | None:
    """The input tokens that select a price for long requests; None if not reported.

    A reading of a batch's results is the sum of many requests. Their single sizes are unknown, so
    the average is used.
    """
    results = usage.tool_units.get("batch_results")
    if usage.input_tokens is None or not results:
        return usage.input_tokens
    return usage.input_tokens // results


type Quantity = tuple[str, int, str | None]
"""Line, quantity, and a note of a cut. A tuple, because every exchange makes a dozen."""


def covered(rates: Mapping[str, Rate]) -> dict[str, Rate]:
    """The same rates, with those that a list writes under another name: its price of a cache write
    is the one of five minutes. No line takes another's price: what a provider bills at the price of
    another line is a rule, with its page."""
    whole = dict(rates)
    if write := rates.get("cache_write"):
        whole.setdefault("cache_write_5m", write)
        if "cache_write_1h" in rates:
            note = "how long it is kept is not reported: as five minutes"
            whole["cache_write"] = replace(write, note=note)
    return whole


def quantities(usage: Usage, rates: Mapping[str, Rate]) -> list[Quantity]:
    """The lines of a reading that are not zero, or were cut to zero.

    `uncached_input` is listed with cache lines even if it is zero: its price is needed to compute
    the savings of the cache. Reasoning is a line only where `rates` prices it apart, because every
    provider bills it as output; so are citations, which only one provider bills.
    """
    units = usage.tool_units
    cached_audio = units.get("cache_read_audio_tokens")
    cached_image = units.get("cache_read_image_tokens")
    parts: list[Quantity] = []
    if usage.cache_read_tokens:
        kinds = ("cache_read_audio", cached_audio, None), ("cache_read_image", cached_image, None)
        parts += _split(usage.cache_read_tokens, kinds, "cache_read")
    # The total wins over its split. In an Anthropic stream the total can grow while the split keeps
    # its first figures: the difference is unsplit.
    lifetimes = (
        ("cache_write_5m", usage.cache_write_5m_tokens, None),
        ("cache_write_1h", usage.cache_write_1h_tokens, None),
        ("cache_write_12h", units.get("cache_write_12h_tokens"), None),
    )
    parts += _split(usage.cache_write_tokens, lifetimes, "cache_write")
    if usage.input_audio_tokens or units:
        kinds_of_input = (
            ("input_audio", _less(usage.input_audio_tokens, cached_audio), None),
            ("input_image", _less(units.get("input_image_tokens"), cached_image), None),
            ("input_video", units.get("input_video_tokens"), None),
            ("input_search", units.get("input_search_tokens"), None),
        )
        parts += _split(None, kinds_of_input, "")
    whole = units.get("billed_input_tokens", usage.input_tokens)
    lines = _split(whole, parts, "uncached_input")
    if parts and whole is not None and lines[-1][0] != "uncached_input":
        lines.append(("uncached_input", 0, None))
    kinds_of_output = (
        ("reasoning", usage.reasoning_tokens if "reasoning" in rates else None, None),
        ("output_audio", usage.output_audio_tokens, None),
        ("output_image", units.get("output_image_tokens"), None),
        ("output_video", units.get("output_video_tokens"), None),
        ("output_decision", units.get("output_decision_tokens"), None),
    )
    lines += _split(billed_output_tokens(usage), kinds_of_output, "output")
    has_tokens = any(count for _, count, _ in lines)
    for unit, count in units.items():
        if not count or unit in CONTAINED_UNITS or unit in BILLED_TOTALS:
            continue
        line = BILLED_WHERE_PRICED.get(unit)
        if line is None or line in rates or (unit in BILLED_ALONE and not has_tokens):
            lines.append((line or unit, count, None))
    return lines


def billed_output_tokens(usage: Usage) -> int | None:
    """The output tokens that are billed: Cohere bills another total than the model counted."""
    return usage.tool_units.get("billed_output_tokens", usage.output_tokens)


def _split(
    whole: int | None, parts: Iterable[tuple[str, int | None, str | None]], rest_line: str
) -> list[Quantity]:
    """The parts that are reported, each cut to the remaining total, and the rest; with an unknown
    total no part is cut and there is no rest."""
    lines: list[Quantity] = []
    for line, reported, note in parts:
        if not reported and note is None:
            continue
        count = reported or 0
        if whole is None or count <= whole:
            lines.append((line, count, note))
        else:
            cut = f"{count} reported, cut to what its total leaves"
            lines.append((line, whole, note or cut))
        if whole is not None:
            whole = max(0, whole - count)
    if whole:
        lines.append((rest_line, whole, None))
    return lines


def _less(whole: int | None, part: int | None) -> int | None:
    return whole if whole is None or part is None else max(0, whole - part)
