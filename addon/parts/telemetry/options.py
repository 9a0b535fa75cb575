"""Edge (mitmproxy). The options of this part: `tee_metrics`, `tee_otlp`, `tee_log_format`."""

from urllib.parse import urlsplit

from addon.proxy.options import PartOption, one_of
from ledger.text.origins import listen_address
from ledger.text.printable import without_credentials


def address_of(text: str | None) -> tuple[str, int] | None:
    """Host and port of `/healthz`, `/readyz` and `/metrics`; None: they are not served.
    ValueError."""
    if not text:
        return None
    host, port = listen_address(text) or ("", 0)
    if not port:
        raise ValueError(f"tee_metrics: {text!r} is not [HOST:]PORT")
    return host or "127.0.0.1", port


def receiver_of(text: str | None) -> str | None:
    """The base URL of an OTLP/HTTP receiver; None: nothing is exported. ValueError."""
    if not text:
        return None
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # a bracket without its other half
        is_url = False
    if not is_url:
        given = without_credentials(text)
        raise ValueError(f"tee_otlp: {given!r} is not a URL; write http://127.0.0.1:4318")
    return text


METRICS = PartOption(
    help="Serve /healthz, /readyz and /metrics (Prometheus) on [HOST:]PORT; HOST is "
    "127.0.0.1 if it is left out. Off by default.",
    read=address_of,
)
OTLP = PartOption(
    help="Export OpenTelemetry GenAI spans and metrics to this OTLP/HTTP URL, such as "
    "http://127.0.0.1:4318. Off by default.",
    read=receiver_of,
)
LOG_FORMAT = PartOption(
    help="How log lines look: text (default); json: one object for each line.",
    read=lambda text: one_of("tee_log_format", text, {"text": False, "json": True}),
)
