"""Headers are found, and contexts forked, as by mitmproxy."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mitmproxy.connection import Client
from mitmproxy.http import Headers
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode

from addon.proxy.patches import light_lookups

NAMES = st.sampled_from(["Host", "host", "HOST", "te", "x-é", "x-\udcff", "", "absent"])
VALUES = st.binary(max_size=4)


@pytest.fixture
def installed() -> Iterator[None]:
    uninstall = light_lookups.install()
    yield
    uninstall()


class Plain(Headers):
    """Is looked up as mitmproxy does it, being another type."""


@pytest.mark.usefixtures("installed")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(NAMES.map(lambda name: name.encode("utf-8", "surrogateescape")), VALUES)),
    NAMES | NAMES.map(lambda name: name.encode("utf-8", "surrogateescape")),
)
def test_headers_are_found_as_by_mitmproxy(
    fields: list[tuple[bytes, bytes]], name: str | bytes
) -> None:
    theirs, ours = Plain(fields), Headers(fields)
    assert ours.get(name) == theirs.get(name)
    assert ours.get(name, 5) == theirs.get(name, 5)
    assert (name in ours) is (name in theirs)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", [None, 5])
def test_what_is_no_name_is_refused_as_by_mitmproxy(name: object) -> None:
    raised = []
    for kind in (Plain, Headers):
        headers = kind([(b"a", b"b")])
        for look_up in (kind.get, kind.__contains__):
            with pytest.raises((TypeError, AttributeError)) as caught:
                look_up(headers, name)
            raised.append(caught.type)
    assert raised[:2] == raised[2:]


def context() -> Context:
    client = Client(peername=("client", 1), sockname=("here", 2), timestamp_start=0.0)
    made = Context(client, Options())
    HttpLayer(made, HTTPMode.regular)
    return made


@pytest.mark.usefixtures("installed")
def test_a_context_is_forked_as_by_mitmproxy() -> None:
    made = context()
    fork = made.fork()
    light_lookups.install()()  # the second one leaves it to the first
    assert type(fork) is Context
    assert vars(fork) == vars(made)
    assert fork.layers is not made.layers
    assert fork.server is made.server


def test_it_is_undone() -> None:
    before = Headers.get, Headers.__contains__, Context.fork
    uninstall = light_lookups.install()
    ours = (light_lookups.get, light_lookups.contains, light_lookups.forked)
    assert (Headers.get, Headers.__contains__, Context.fork) == ours
    uninstall()
    assert (Headers.get, Headers.__contains__, Context.fork) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version.VERSION", "13.0.0"),
        ("http.Headers.get", lambda headers, key: None),
        ("http._always_bytes", None),
    ],
)
def test_another_shape_or_version_is_left_alone(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delattr(f"mitmproxy.{name}")
    else:
        monkeypatch.setattr(f"mitmproxy.{name}", value, raising=False)
    before = Headers.get, Headers.__contains__, Context.fork
    light_lookups.install()()
    assert (Headers.get, Headers.__contains__, Context.fork) == before
