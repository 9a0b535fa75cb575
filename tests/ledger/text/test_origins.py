"""Origins as they are stored, and as people read and write them."""

import pytest

from ledger.text.origins import listen_address, shown_origin, stored_origin


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("https://api.example.com:443", "https://api.example.com"),
        ("http://localhost:80", "http://localhost"),
        ("wss://api.example.com:443", "wss://api.example.com"),
        ("ws://localhost:80", "ws://localhost"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("https://localhost:80", "https://localhost:80"),
        ("http://localhost:443", "http://localhost:443"),
        ("https://[::1]:443", "https://[::1]"),
        ("http://[fe80::443]:11434", "http://[fe80::443]:11434"),
        ("https://api.example.com:8443", "https://api.example.com:8443"),
    ],
)
def test_the_default_port_is_not_shown(stored, shown):
    assert shown_origin(stored) == shown
    assert stored_origin(shown) == stored
    assert shown_origin(shown) == shown
    assert stored_origin(stored) == stored


@pytest.mark.parametrize("origin", ["", "api.example.com", "unix:443", "*example*"])
def test_what_is_no_origin_stays(origin):
    assert shown_origin(origin) == stored_origin(origin) == origin


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h:1", ("h", 1)),
        ("[::1]:80", ("::1", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        (":80", ("", 80)),
        ("80", ("", 80)),
        ("h:0", ("h", 0)),
        ("h:65536", None),
        ("h", None),
        ("::", None),
        ("::1:80", None),
        ("h:\u00b2", None),
        ("h:+1", None),
        ("", None),
    ],
)
def test_addresses_to_listen_on(text, address):
    assert listen_address(text) == address
