"""The rule of duplicates in Python, to compare the databases' statements with (`links.py`)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.engine import Engine

from tests.ledger.written import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What the rule looks at."""

    id: str
    opened_at: datetime
    origin: str
    response_id: str | None
    source: str = "live"
    key_fingerprint: str | None = None
    request_digest: str | None = None
    upstream_digest: str | None = None
    content_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What the rule says of an exchange."""

    duplicate_of: str | None = None
    id_collision: bool = False


def rank(member: Member) -> tuple[int, datetime, str]:
    unknown = [member.key_fingerprint, member.request_digest, member.upstream_digest].count(None)
    return 0 if member.source == "live" else 1 + unknown, member.opened_at, member.id


def covers(y: Member, x: Member) -> bool:
    """Everything that can be compared says that x is the response that y is."""
    if x.source == "live":
        return (
            y.source == "live"
            and y.key_fingerprint == x.key_fingerprint
            and y.request_digest == x.request_digest
            and y.upstream_digest == x.upstream_digest
            and (x.upstream_digest is not None or y.content_digest == x.content_digest)
        )
    is_request_unknown = x.request_digest is None or (
        y.source == "live" and y.request_digest is None
    )
    if x.upstream_digest is None:
        is_answer_same = x.content_digest is not None and y.content_digest == x.content_digest
    else:
        is_answer_same = y.upstream_digest == x.upstream_digest
    return (
        x.key_fingerprint in (None, y.key_fingerprint)
        and (is_request_unknown or y.request_digest == x.request_digest)
        and is_answer_same
    )


def link(members: Iterable[Member]) -> dict[str, Link]:
    """The links of every member, by id."""
    members = list(members)
    groups: dict[tuple[str, str], list[Member]] = defaultdict(list)
    for member in members:
        if member.response_id and (member.upstream_digest or member.content_digest):
            groups[member.origin, member.response_id].append(member)
    links = {member.id: Link() for member in members}
    for group in groups.values():
        group.sort(key=rank)
        originals = {
            x.id: next((y.id for y in group[:place] if covers(y, x)), None)
            for place, x in enumerate(group)
        }
        collides = list(originals.values()).count(None) > 1
        for name, original in originals.items():
            links[name] = Link(duplicate_of=original, id_collision=collides)
    return links


def links_of(place: Engine | str) -> dict[str, Link]:
    """The links that a ledger has."""
    return {
        row.id: Link(duplicate_of=row.duplicate_of, id_collision=bool(row.id_collision))
        for row in rows(place, "SELECT id, duplicate_of, id_collision FROM exchanges")
    }
