"""Pure. Origins: stored with their port, shown without the default port of their scheme; and
addresses to listen on."""

import re
from urllib.parse import urlsplit

from ledger.model.exchange import DEFAULT_PORTS

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Za-z:.%_-]+\]|[A-Za-z0-9._-]*):)?(?P<port>[0-9]{1,5})")


def shown_origin(origin: str) -> str:
    """`https://api.example.com` of `https://api.example.com:443`; other ports stay."""
    return origin.removesuffix(_default_port(origin))


def stored_origin(origin: str) -> str:
    """The opposite: an origin without a port gets the default port of its scheme."""
    _, _, host = origin.partition("://")
    # The colons of an IPv6 address stand in brackets.
    has_port = ":" in host.rpartition("]")[2]
    return origin if has_port else origin + _default_port(origin)


def _default_port(origin: str) -> str:
    port = DEFAULT_PORTS.get(origin.partition("://")[0])
    return f":{port}" if port else ""


def host_of(origin: str) -> str | None:
    """The host of an origin, in lower case without a dot at its end; None if it is not a URL."""
    try:
        return (urlsplit(origin).hostname or "").rstrip(".") or None
    except ValueError:
        return None


def listen_address(text: str) -> tuple[str, int] | None:
    """Host and port of `[HOST:]PORT`, the host without its brackets; None for any other text. Empty
    host: the text names none. Port 0: any free one."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        return None
    return (found["host"] or "").strip("[]"), int(found["port"])
