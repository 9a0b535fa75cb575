#!/usr/bin/env bash
# Guess: without a flavour, genai-prices reads a chat answer of xAI as the provider's format: xAI's
#   `completion_tokens` is without reasoning there (the total shows it), and cached input is a part.
# Seen: the default flavour reads two of the four figures: 100 of 600 output tokens, none of the cached
#   ones. `api_flavor="chat"` reads all. The two prices of one answer differ by the factor 2.6, and
#   no warning says that the total disagrees. For DeepSeek, OpenAI and Azure there is no default
#   flavour, and the same call raises.
# Why it matters to a meter: "extract, then price" by the provider's name is what the readme shows; the
#   total of the answer is the only figure that tells that parts are missing.
# Versions: genai-prices 0.2.3; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check genai-prices==0.2.3
"$folder/venv/bin/python" - <<'PYTHON'
from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import extract_usage

answer = {
    "model": "grok-4",
    "usage": {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "total_tokens": 1600,
        "prompt_tokens_details": {"cached_tokens": 200},
        "completion_tokens_details": {"reasoning_tokens": 500},
    },
}
when = datetime(2026, 11, 28, tzinfo=UTC)
seen = {}
for flavour in ("default", "chat"):
    read = extract_usage(answer, provider_id="x-ai", api_flavor=flavour)
    price = read.calc_price(genai_request_timestamp=when).total_price
    seen[flavour] = (read.usage.output_tokens, read.usage.cache_read_tokens, price)
    print(f"{flavour:8} {read.usage} ${price}")
# 800 at $3, 200 at $0.75, 600 at $15 a million
assert seen == {"default": (100, 0, Decimal("0.0045")), "chat": (600, 200, Decimal("0.01155"))}, seen
for provider in ("deepseek", "openai", "azure"):
    try:
        extract_usage(answer, provider_id=provider)
    except ValueError as error:
        print(f"{provider:8} {error}")
    else:
        raise AssertionError(provider)
PYTHON
