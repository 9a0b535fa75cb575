"""Edge. LiteLLM's `model_prices_and_context_window.json` as a second source of prices.

It has models and tiers that genai-prices lacks, but no history: its prices are today's, and such
maps contain errors, too (BerriAI/litellm#39501). So it is used only if the first source has no
price, and the price source names the digest of the file.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from ledger.model.errors import LedgerError
from ledger.model.money import AMOUNT_MAX, PICOUSD_PER_USD
from ledger.pricing.price_lines import Rate
from ledger.pricing.published import picousd_of_price, tier_name
from ledger.settings import small_files
from ledger.settings.toml_tables import decimal_of_figure

FILE_BYTES_MAX = 64 * 1024 * 1024
"""The file has 1.6 MB in 2026."""

PRICE_KEYS = {
    "uncached_input": "input_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "input_audio": "input_cost_per_audio_token",
    "input_image": "input_cost_per_image_token",
    "cache_read_audio": "cache_read_input_audio_token_cost",
    "output": "output_cost_per_token",
    "reasoning": "output_cost_per_reasoning_token",
    "output_audio": "output_cost_per_audio_token",
    "output_image": "output_cost_per_image_token",
}
"""Our line -> LiteLLM's key."""

_WHOLE = {"reasoning": "output_cost_per_token"}
"""Line -> the key of the line that it is a part of."""
_STEP = re.compile(r"(.+)_above_(\d{1,6})k_tokens(.*)")
"""The key of a price for long requests: the line's key, thousands of input tokens, the tier."""

TIER_SUFFIXES = {
    "flex": "_flex",
    "priority": "_priority",
    "batch": "_batches",
    "ultrafast": "_ultrafast",
}

PROVIDERS = {
    "google": ("gemini", "vertex_ai"),
    "aws": ("bedrock", "bedrock_converse"),
    "azure": ("azure", "azure_ai"),
    "x-ai": ("xai",),
    "together": ("together_ai",),
    "fireworks": ("fireworks_ai",),
    "moonshotai": ("moonshot",),
    "voyageai": ("voyage",),
    "github-copilot": ("github_copilot",),
    "cohere": ("cohere", "cohere_chat"),
    "openai": ("openai", "text-completion-openai"),
}
"""A list's id -> LiteLLM's names for it; any other list has the same name there."""


@dataclass(frozen=True, slots=True)
class LiteLLM:
    """One price file of LiteLLM."""

    models: Mapping[str, Mapping[str, Any]]
    source: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """The file, or a LedgerError in one line."""
        data = small_files.read_bytes(path, "LiteLLM price file", bytes_max=FILE_BYTES_MAX)
        try:
            models = json.loads(data, parse_float=decimal_of_figure)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"{path} is not JSON: {error}") from None
        if not isinstance(models, dict):
            raise LedgerError(f"{path} is not LiteLLM's price file: no object of models")
        digest = hashlib.sha256(data).hexdigest()[:12]
        return cls.of(models, f"litellm sha256:{digest}")

    @classmethod
    def of(cls, models: Mapping[str, Any], source: str) -> Self:
        """The models of such a file; what is no object is left out."""
        return cls({name: each for name, each in models.items() if isinstance(each, dict)}, source)

    def rates(
        self, list_id: str, model: str, tier: str | None
    ) -> tuple[dict[str, Rate], str | None] | None:
        """The model's rates in that list, and the tier if it has no price for it: then the rates
        are the standard ones. None if the list lacks the model."""
        names = PROVIDERS.get(list_id, (list_id,))
        for key in (*(f"{name}/{model}" for name in names), model):
            found = self.models.get(key)
            if found is None:
                continue
            if str(found.get("litellm_provider", "")).startswith(names):
                return _rates(found, f"{self.source} {key}", tier)
        return None


def _rates(
    model: Mapping[str, Any], source: str, tier: str | None
) -> tuple[dict[str, Rate], str | None]:
    """The price of a line that has a standard price and none for the tier is unknown, unless the
    line costs as much as the one that it is a part of."""
    name = tier_name(tier)
    suffix = TIER_SUFFIXES.get(name or "", "")
    missing = name if not suffix or "input_cost_per_token" + suffix not in model else None
    suffix = "" if missing else suffix
    steps: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for each, price in model.items():
        found = _STEP.fullmatch(each)
        if found is not None and (above := _unit(price)) is not None:
            steps.setdefault((found[1], found[3]), []).append((int(found[2]) * 1000, above))
    rates = {}
    for line, key in PRICE_KEYS.items():
        unit = _unit(model.get(key + suffix))
        standard = _unit(model.get(key)) if suffix and unit is None else None
        if standard is not None and standard != _unit(model.get(_WHOLE.get(line, ""))):
            note = f"listed without a price for service tier {name!r}"
            rates[line] = Rate(0, source, note=note, is_unknown=True)
        if unit is None:
            continue
        rates[line] = Rate(unit, source, tuple(sorted(steps.get((key, suffix), ()))))
    return rates, missing


def _unit(price: object) -> int | None:
    if isinstance(price, bool) or not isinstance(price, int | Decimal):
        return None
    decimal = Decimal(price)
    if not decimal.is_finite() or not 0 <= decimal <= AMOUNT_MAX // PICOUSD_PER_USD:
        return None
    return picousd_of_price(decimal, 1)
