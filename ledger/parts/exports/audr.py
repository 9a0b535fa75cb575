"""Pure. A request as an Agent Usage Detail Record, AUDR 1.1 (https://openaudr.dev/spec/v1.1.0/, the
fields by `audr` 0.2.0, whose validator passes the recorded corpus).

Its counters leave out what has one of its own: input the cached tokens, output the reasoning. What
the ledger does not know is absent; zero was measured. A correction is the whole record again, one
of a request that does not count any more has zeros. Who pays and where it ran stand in tags of the
request: `environment`, `account_id`, `subscription_id`; its other tags are labels.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

from ledger.model.money import usd

ENVIRONMENTS = ("production", "staging", "development", "test", "evaluation")
UNATTRIBUTED = "unattributed"
"""The account of a request in production whose tags name none; a record must have one."""
_OPERATIONS = {
    "embeddings": ("embedding", "text"),
    "rerank": ("reranking", "text"),
    "image_generation": ("generation", "image"),
    "video_generation": ("generation", "multimodal"),
    **dict.fromkeys(("audio", "music_generation", "text_to_speech"), ("generation", "audio")),
}
"""Of the ledger -> operation and modality; others generate text."""
_NO_SLUG = re.compile("[^a-z0-9-]+")
_LABEL = re.compile("[a-zA-Z0-9_.-]{1,64}")
_LABELS_MAX, _LABEL_LENGTH_MAX = 20, 256
_RUN_LENGTHS = range(8, 65)
_OF_ATTRIBUTION = ("environment", "account_id", "subscription_id")
_OF_LABELS = ("agent", "git_branch", "project")


def record_of(
    row: Mapping[Any, Any],
    figures: Mapping[str, int | None],
    corrects: str | None,
    environment: str,
) -> dict[str, Any]:
    """The record of a request; one without `outcome` does not count any more. `environment`: of a
    request whose tags name none."""
    at: datetime = row["settled_at"] or row["opened_at"]
    is_void, outcome = "outcome" not in row, row.get("outcome")
    operation, modality = _OPERATIONS.get(row["operation"], ("generation", "text"))
    run_id = row.get("session_id") or row["id"]
    if len(run_id) not in _RUN_LENGTHS:
        run_id = hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()
    record: dict[str, Any] = {
        "spec_version": "1.1.0",
        "record_id": _uuid_7(at, json.dumps([row["id"], corrects, figures])),
        "emitter": {"component": "router", "name": "tokentee", "version": version("tokentee")},
        "timing": {"event_time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z")},
        "resource": {
            "provider": _NO_SLUG.sub("-", row["provider"].lower()).strip("-") or "unknown",
            "type": "model",
            "name": row["model"] or "unknown",
            "operation": operation,
            "modality": modality,
        },
        "run": {"run_id": run_id, "span_id": row["id"]},
        "attribution": _attribution(row, environment),
        "usage": {"llm": _counters(figures) | {"requests": 0 if is_void else 1}},
    }
    if corrects is not None:
        record["corrects"] = corrects
    if outcome not in (None, "complete"):
        record["run"]["error_code"] = str(outcome).upper()
    cost = usd(figures["cost_picousd"])
    if cost is not None:
        # A number by its schema; to the picodollar it stands in the ledger and in `events`.
        record["cost"] = {"total_cost": float(cost), "currency": "USD"}
    return record


def _counters(figures: Mapping[str, int | None]) -> dict[str, int]:
    read, written = figures["cache_read_tokens"], figures["cache_write_tokens"]
    reasoning = figures["reasoning_tokens"]
    counters = {
        "input_tokens": _beside(figures["input_tokens"], read, written),
        "output_tokens": _beside(figures["output_tokens"], reasoning),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": reasoning,
    }
    return {name: count for name, count in counters.items() if count is not None}


def _beside(total: int | None, *parts: int | None) -> int | None:
    return None if total is None else max(0, total - sum(part or 0 for part in parts))


def _attribution(row: Mapping[Any, Any], environment: str) -> dict[str, Any]:
    tags: dict[str, str] = json.loads(row.get("tags") or "{}")
    stated = {name: tags.pop(name) for name in _OF_ATTRIBUTION if tags.get(name)}
    if stated.get("environment") not in ENVIRONMENTS:
        stated["environment"] = environment
    if stated["environment"] == "production":
        stated.setdefault("account_id", UNATTRIBUTED)
    user = row.get("end_user")
    if user and "@" not in user:  # a pseudonym by the specification
        stated["user_id"] = user
    labels = {name: row.get(name) for name in _OF_LABELS} | tags
    kept = {
        name: value[:_LABEL_LENGTH_MAX]
        for name, value in labels.items()
        if value and _LABEL.fullmatch(name)
    }
    return {**stated, "labels": dict(list(kept.items())[:_LABELS_MAX])} if kept else stated


def _uuid_7(at: datetime, content: str) -> str:
    """An id by time, which is the same for the same content."""
    digest = hashlib.blake2b(content.encode(), digest_size=10).digest()
    bits = int(at.timestamp() * 1_000) << 80 | int.from_bytes(digest)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    text = f"{bits & ~(0x3 << 62) | 0x2 << 62:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
