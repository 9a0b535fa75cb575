"""Pure. The events that end an exchange. Recordings name them, so they are apart from the meter."""

from enum import Enum

TRANSPORT = "transport"
"""`error_type` of connection errors: a connection refused, reset or cut."""


class End(Enum):
    """The event that ended an exchange, as the proxy observed it."""

    FINISHED = "finished"
    """The body ended as its HTTP framing allows."""
    CLIENT_LEFT = "client_left"
    UPSTREAM_BROKE = "upstream_broke"
    """Reset, refused, cut inside a framed body, timed out."""
    STOPPED = "stopped"
    """The proxy ended it: shut down, or the flow was killed."""
