#!/usr/bin/env bash
# Guess: where a server states more reasoning tokens than output tokens (OpenRouter and others count the
#   two with different tokenizers; the total is prompt and output), LiteLLM bills the stated output.
# Seen: it keeps `completion_tokens: 5` in the usage that it hands on and bills the 50 reasoning tokens
#   beside 0 others: $0.000775 where the figures say $0.0001. Reasoning that fits within the output
#   changes nothing. The same for cached input beyond the prompt: 163 are billed of a prompt of 7.
# Why it matters to a meter: parts are bounded by their whole or the whole is not the sum. A report that
#   multiplies the tokens beside this cost by the price never comes to it.
# Versions: litellm 1.110.2, its own price list of that release; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check litellm==1.110.2
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import litellm

MODEL = "gpt-5.4"


def cost(prompt, output, **details):
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **details}
    message = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    answer = litellm.ModelResponse(id="c", created=1, model=MODEL, choices=[message], usage=usage)
    dollars = litellm.completion_cost(answer, model=MODEL, custom_llm_provider="openai")
    print(f"{prompt} in, {output} out, {details}: ${dollars:.8f}; handed on: {answer.usage.completion_tokens} out")
    return round(dollars * 1e9)


prices = litellm.model_cost[MODEL]
read, write, cached = (
    round(prices[name] * 1e9)
    for name in ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
)
assert cost(10, 5) == 10 * read + 5 * write
assert cost(10, 5, completion_tokens_details={"reasoning_tokens": 4}) == 10 * read + 5 * write
assert cost(10, 5, completion_tokens_details={"reasoning_tokens": 50}) == 10 * read + 50 * write
assert cost(7, 1, prompt_tokens_details={"cached_tokens": 163}) == 163 * cached + write
PYTHON
