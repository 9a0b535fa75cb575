"""Pure. A lesson, learnt from traffic: how an upstream reacts to a request for usage."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What traffic has taught about asking an upstream for usage."""

    origin: str
    path: str
    verdict: str
    """`opt_in`: usage comes only on request; `automatic`: it comes unasked; `refuses`: the upstream
    rejects requests that ask for it."""
    learned_at: datetime
    expires_at: datetime
