"""Where metrics are served, where spans go, how lines look."""

import pytest

from addon.parts.telemetry.options import LOG_FORMAT, METRICS, OTLP
from tests.named import for_each


@for_each(
    "text, address",
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        (None, None),
    ],
)
def test_where_metrics_are_served(text: str | None, address: tuple[str, int] | None) -> None:
    assert METRICS.read(text) == address


@for_each("text", ["x", "0", "localhost", "h:99999", "²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"tee_metrics: .* is not"):
        METRICS.read(text)


def test_where_spans_go_and_how_lines_look() -> None:
    assert OTLP.read("http://127.0.0.1:4318") == "http://127.0.0.1:4318"
    assert [LOG_FORMAT.read(text) for text in ("json", "text", None)] == [True, False, False]
    with pytest.raises(ValueError, match="tee_otlp: 'collector:4318' is not a URL"):
        OTLP.read("collector:4318")
