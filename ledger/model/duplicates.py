"""Pure. Digests that tell one billed response from another.

The database decides which rows are duplicates (`store/schema/links.py`).
"""

import hashlib

REQUEST_DIGEST_CHARACTERS = 32
"""128 bits: enough to distinguish requests, at half the size of a whole digest in every index."""


def request_digest(body: bytes | None) -> str | None:
    """Digest of a request's body as the client sent it; None if it is not known."""
    return None if body is None else hashlib.sha256(body).hexdigest()[:REQUEST_DIGEST_CHARACTERS]


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
    parts = (response_model, created, finish_reason, usage_json)
    text = "\0".join("" if part is None else f"={part}" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
