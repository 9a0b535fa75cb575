"""Values of requests: what is known of a body, and headers."""

import pytest

from addon.metering.requests.messages import NOT_KNOWN, Body, header_map, recorded_body


@pytest.mark.parametrize(
    ("data", "method", "body"),
    [
        (b"x", "POST", Body(b"x")),
        (b"", "POST", NOT_KNOWN),
        (b"", "GET", Body(b"")),
        (b"", "CONNECT", Body(b"")),
    ],
)
def test_a_recorded_body_may_be_missing(data, method, body):
    assert recorded_body(data, method) == body


def test_of_two_headers_the_last_counts():
    fields = [(b"A", b"1"), (b"a", b"2"), (b"B", b"\xff")]
    assert header_map(fields) == {"a": "2", "b": "\udcff"}
