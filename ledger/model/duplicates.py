"""Pure. Digests that tell one billed response from another.

The database decides which rows are duplicates (`store/schema/links.py`).
"""

import contextlib
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

    Nearly all responses share their model and finish reason with others. Of the usage object the
    order of the keys and nulls do not count: a response that is fetched again has the same figures.
    """
    if created is None and usage_json is None:
        return None
    figures = usage_json
    if usage_json is not None:
        # A number that no JSON library takes, or depth: as it is written.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            usage = orjson.loads(usage_json)
            usage = _without_nulls(usage) if "null" in usage_json else usage
            figures = orjson.dumps(usage, option=orjson.OPT_SORT_KEYS).decode()
    parts = (response_model, created, finish_reason, figures)
    text = "\0".join(["" if part is None else f"={part}" for part in parts])
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _without_nulls(value: Any) -> Any:
    """The value without members that are null."""
    if type(value) is dict:
        return {
            key: _without_nulls(one) if type(one) in (dict, list) else one
            for key, one in value.items()
            if one is not None
        }
    if type(value) is list:
        return [_without_nulls(one) if type(one) in (dict, list) else one for one in value]
    return value
