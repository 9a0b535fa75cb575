"""Pure. What traffic has taught about asking an upstream for usage."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What traffic has taught about asking an upstream for usage."""

    origin: str
    path: str
    verdict: str
    """`opt_in`: none comes unasked; `automatic`: it comes by itself; `refuses`: upstream rejects
    the question."""
    learned_at: datetime
    expires_at: datetime
