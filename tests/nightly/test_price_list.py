"""The price book against LiteLLM's price list: each price of each model that both have.

pytest -n 0 -m nightly -s tests/nightly/test_price_list.py

LiteLLM's wheel is fetched into a temporary folder; the test itself needs no network. Each key with a
price becomes a request with usage of that kind alone, at a size beyond the key's step and in its
service tier, and so do the regional multipliers. `price_list_known.toml` has the known reasons for
differences. Fails at a difference without a reason, and at a reason without a difference. What we
call unpriced or partial is no difference: it is no wrong figure.
"""

import json
import re
import subprocess
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from ledger.model.money import PICOUSD_PER_USD
from ledger.model.provider_table import provider_of
from ledger.model.usage import TOKENS, Usage
from ledger.pricing.prices import PriceBook
from tests.ledger.priced import exchange, reading

VERSION = "1.110.2"
MEMBER = "litellm/model_prices_and_context_window_backup.json"
AT = datetime(2026, 11, 27, 2, 0, tzinfo=UTC)
"""Near the day of that version, and in DeepSeek's peak hours, whose prices it has."""
TABLES = tomllib.loads(Path(__file__).with_name("price_list_known.toml").read_text("utf-8"))
HOSTS = TABLES["hosts"]
COUNT = 1000
TIERS = {"batches": "batch", "priority": "priority", "flex": "flex", "ultrafast": "ultrafast"}
KEYS = {
    "input_cost_per_token": ("uncached_input", ""),
    "cache_read_input_token_cost": ("cache_read", "cache_read_tokens"),
    "cache_creation_input_token_cost": (
        "cache_write_5m",
        "cache_write_tokens cache_write_5m_tokens",
    ),
    "cache_creation_input_token_cost_above_1hr": (
        "cache_write_1h",
        "cache_write_tokens cache_write_1h_tokens",
    ),
    "cache_creation_input_token_cost_above_12hr": (
        "cache_write_12h",
        "cache_write_tokens cache_write_12h_tokens",
    ),
    "input_cost_per_audio_token": ("input_audio", "input_audio_tokens"),
    "input_cost_per_image_token": ("input_image", "input_image_tokens"),
    "input_cost_per_video_token": ("input_video", "input_video_tokens"),
    "cache_read_input_audio_token_cost": (
        "cache_read_audio",
        "cache_read_tokens cache_read_audio_tokens",
    ),
    "cache_read_input_image_token_cost": (
        "cache_read_image",
        "cache_read_tokens cache_read_image_tokens",
    ),
    "output_cost_per_token": ("output", ""),
    "output_cost_per_reasoning_token": ("reasoning", "reasoning_tokens"),
    "output_cost_per_audio_token": ("output_audio", "output_audio_tokens"),
    "output_cost_per_image_token": ("output_image", "output_image_tokens"),
    "output_cost_per_video_token": ("output_video", "output_video_tokens"),
    "input_cost_per_query": ("search_units", "search_units"),
    "ocr_cost_per_page": ("document_pages", "document_pages"),
}
"""LiteLLM's key -> our line, and its counts."""
KEY = re.compile(
    rf"({'|'.join(sorted(KEYS, key=len, reverse=True))})(?:_above_(\d+)k_tokens)?(?:_({'|'.join(TIERS)}))?"
)
REGION = r"(?:us|eu|ap|ca|sa|me|af|il|mx)-[a-z-]+-\d"
MULTIPLIERS = {
    "regional_processing_uplift_multiplier_eu": "eu.api.openai.com",
    "regional_processing_uplift_multiplier_us": "us.api.openai.com",
    "regional_endpoint_uplift_multiplier": "europe-west1-aiplatform.googleapis.com",
}


class Shape(NamedTuple):
    """One price that an entry states."""

    name: str
    host: str
    tier: str | None
    line: str
    usage: Usage
    usd: Decimal
    fields: str | None = None


@pytest.fixture(scope="module")
def price_list(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("wheel")
    fetch = ("-m", "pip", "download", f"litellm=={VERSION}", "--no-deps", "-q", "-d", str(folder))
    subprocess.run(
        ["uv", "run", "--no-project", "--with", "pip", "python", *fetch], check=True, timeout=300
    )
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        entries: dict[str, dict[str, Any]] = json.loads(wheel.read(MEMBER), parse_float=Decimal)
    return entries


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_each_difference_has_a_known_reason(price_list):
    known = [(where, row) for row in TABLES["known"] for where in row["where"]]
    book, differences, unused = PriceBook(), [], {where for where, _ in known}
    seen: Counter[str] = Counter()
    for key, entry in price_list.items():
        for shape in shapes(key, entry):
            unit, is_whole = priced(book, model_of(key), shape)
            if unit is None or not is_whole:
                seen["unpriced or partial"] += 1
                continue
            seen["priced"] += 1
            expected = shape.usd * PICOUSD_PER_USD
            if abs(unit - expected) * 1000 <= expected:
                continue
            name = f"{key}: {shape.name}"
            reasons = [
                (where, row["why"])
                for where, row in known
                if fnmatchcase(name, where) and explains(row, expected, unit)
            ]
            unused -= {where for where, _ in reasons}
            why = reasons[0][1] if reasons else "NOT KNOWN"
            differences.append((why, f"{name}: {shape.usd * 10**6:f}, ours {unit / 10**6}"))
    for why, difference in sorted(differences):
        print(f"{difference}  ({why})")
    print(dict(seen), Counter(why for why, _ in differences))
    assert [text for why, text in differences if why == "NOT KNOWN"] == []
    assert unused == set(), "no difference has these reasons any more"


def explains(row: dict[str, Any], expected: Decimal, unit: Decimal) -> bool:
    """Whether the difference is of the size that a reason is for."""
    least, greatest = row.get("factor", (0, 10**6))
    return least <= round(float(expected / unit), 3) <= greatest


def shapes(key: str, entry: dict[str, Any]) -> Iterator[Shape]:
    """The prices of an entry, but those of sellers whose lists we lack."""
    host = HOSTS.get(re.sub("^vertex_ai-.*", "vertex_ai", str(entry.get("litellm_provider"))))
    if host is None:
        return
    if region := re.search(rf"/({REGION})/", key.replace("us-gov.", "/us-gov-west-1/")):
        host = host.replace("us-east-1", region[1])
    has_output = any(price for each, price in entry.items() if each.startswith("output_cost"))
    for each, price in entry.items():
        found = KEY.fullmatch(each)
        if found is None or not isinstance(price, int | Decimal):
            continue
        line, counts = KEYS[found[1]]
        usage = usage_of(counts.split(), COUNT + 1000 * int(found[2] or 0), has_output=has_output)
        tier = TIERS.get(found[3] or "")
        name = " ".join(filter(None, (tier, line, found[2] and f"above {found[2]}k")))
        yield Shape(name, host, tier, line, usage, Decimal(price))
    price = entry.get("input_cost_per_token") or 0
    for each, elsewhere in MULTIPLIERS.items():
        if (factor := entry.get(each)) and price:
            yield Shape(
                each, elsewhere, None, "uncached_input", usage_of([], COUNT), price * factor
            )
    specific = entry.get("provider_specific_entry") or {}
    for each, fields in (("us", '{"inference_geo": "us"}'), ("fast", '{"speed": "fast"}')):
        if price and each in specific:
            tier = "fast" if each == "fast" else None
            usd, usage = price * Decimal(specific[each]), usage_of([], COUNT)
            yield Shape(each, host, tier, "uncached_input", usage, usd, fields)


def usage_of(counts: list[str], size: int, *, has_output: bool = True) -> Usage:
    """A request of so many input tokens with these counts; what is no token comes without any."""
    units = {name: COUNT for name in counts if name not in TOKENS}
    if any(not name.endswith("_tokens") for name in units):
        return Usage(tool_units=units)
    tokens = {name: COUNT for name in counts if name in TOKENS}
    whole = {"input_tokens": size, "output_tokens": COUNT * has_output, "tool_units": units}
    return msgspec.convert(whole | tokens, Usage)


def model_of(key: str) -> str:
    """The name on the wire: without LiteLLM's seller, a region and Azure's kind of deployment."""
    seller, _, rest = key.partition("/")
    return re.sub(
        f"^({REGION}|us|eu|global|global-standard)/", "", rest if seller in HOSTS else key
    )


def priced(book: PriceBook, model: str, shape: Shape) -> tuple[Decimal | None, bool]:
    """The price of the shape's line in pico-USD, and whether all lines of the answer have one."""
    about = exchange(
        None,
        provider=provider_of(shape.host, "/v1"),
        origin=f"https://{shape.host}:443",
        request_model=model,
        at=AT,
        service_tier=shape.tier,
    )
    charges = book.price(about, replace(reading(at=AT), usage=shape.usage, usage_json=shape.fields))
    unit = next((each.unit_picousd for each in charges if each.line == shape.line), None)
    is_whole = all(each.amount_picousd is not None for each in charges)
    return (None if unit is None else Decimal(unit)), is_whole
