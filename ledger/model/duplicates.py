"""Pure. When two exchanges are the same billed response, and when they only share an id.

Response ids are data, not keys: some gateways number responses from 1 again and again, and a
cache hands the same response out twice (FIELD 23-26). So, among the exchanges of one origin with
one response id:

same content        the same billed response seen again: the earliest counts, the others are
                    `duplicate_of` it and in no total
different content   different responses: all count, all carry `id_collision`

"Earliest" is by `opened_at`, then by id, so the answer depends on the set of exchanges alone, not
on the order in which they were written or merged. An exchange without a response id or without a
content digest is never linked. The databases do this in SQL, incrementally (`batch_insert.py`,
`merging.py`); `link` is the rule itself, and what their tests compare with.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What the rule looks at."""

    id: str
    opened_at: datetime
    origin: str
    response_id: str | None
    content_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What the rule says of an exchange."""

    duplicate_of: str | None = None
    id_collision: bool = False


def content_digest(
    *,
    response_model: str | None,
    created: object,
    finish_reason: str | None,
    usage_json: str | None,
) -> str | None:
    """What tells a response from another with the same id; None if it says too little.

    A model and a finish reason alone are shared by nearly all responses.
    """
    if created is None and usage_json is None:
        return None
    parts = (response_model, created, finish_reason, usage_json)
    text = "\0".join("" if part is None else f"={part}" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def link(members: Iterable[Member]) -> dict[str, Link]:
    """The links of every member, by id."""
    members = list(members)
    groups: dict[tuple[str, str], dict[str, list[Member]]] = defaultdict(lambda: defaultdict(list))
    for member in members:
        if member.response_id is not None and member.content_digest is not None:
            group = groups[member.origin, member.response_id]
            group[member.content_digest].append(member)
    links = {member.id: Link() for member in members}
    for group in groups.values():
        for same in group.values():
            first = min(same, key=lambda member: (member.opened_at, member.id))
            for member in same:
                links[member.id] = Link(
                    duplicate_of=None if member is first else first.id,
                    id_collision=len(group) > 1,
                )
    return links
