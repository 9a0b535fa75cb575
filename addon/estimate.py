"""Pure. Token estimates for what no provider reported; always marked as such.

About four bytes of English text are a token in every tokenizer in use (OpenAI, "What are tokens
and how to count them"); `tests/bench/bench_estimate.py` measures how far that is off.
"""

BYTES_PER_TOKEN = 4


def input_tokens_of(body: bytes) -> int | None:
    """Input tokens of a request, by its length; None for an empty body."""
    return max(1, len(body) // BYTES_PER_TOKEN) if body else None
