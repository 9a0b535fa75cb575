"""Pure. Digests that tell one billed response from another.

The database decides which rows are duplicates (`store/schema/links.py`).
"""

import hashlib
from collections.abc import Generator
from typing import Any

import orjson

REQUEST_DIGEST_CHARACTERS = 32
"""128 bits: enough to distinguish requests, at half the size of a whole digest in every index."""
DIGEST_STEP_BYTES = 4 * 1024 * 1024
"""Some 4 ms of hashing."""


def request_digest_in_steps(body: bytes) -> Generator[None, None, str]:
    """Digest of a request's body as the client sent it, with a pause after each step of a long
    one."""
    digest = hashlib.sha256(body[:DIGEST_STEP_BYTES])
    view = memoryview(body)
    for at in range(DIGEST_STEP_BYTES, len(body), DIGEST_STEP_BYTES):
        yield
        digest.update(view[at : at + DIGEST_STEP_BYTES])
    return digest.hexdigest()[:REQUEST_DIGEST_CHARACTERS]


def content_digest(
    *,
    response_model: str | None,
    created: object,
    finish_reason: str | None,
    usage_json: str | None,
) -> str | None:
    """A digest that distinguishes responses with the same id; None if there are too few facts.

    Nearly all responses share their model and finish reason with others.
    """
    if created is None and usage_json is None:
        return None
    parts = (response_model, created, finish_reason, _figures_in(usage_json))
    text = "\0".join("" if part is None else f"={part}" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _figures_in(usage_json: str | None) -> str | None:
    """The usage object with its keys in order and without nulls: a response that is fetched again
    has the same figures, in any order of their keys."""
    if usage_json is None:
        return None
    try:
        figures = _without_nulls(orjson.loads(usage_json))
        return orjson.dumps(figures, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError, RecursionError):  # a number that no JSON library takes, or depth
        return usage_json


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
