"""Edge. The versions of mitmproxy that the patches were written for."""

from mitmproxy import version

FIRST = (12, 2)
BELOW = (13,)


def is_known_version() -> bool:
    """Whether this mitmproxy is from `FIRST` on and below `BELOW`."""
    numbers = tuple(int(part) for part in version.VERSION.split(".")[:2] if part.isdigit())
    return FIRST <= numbers < BELOW
