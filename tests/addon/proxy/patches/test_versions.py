"""Which versions of mitmproxy the patches take for theirs."""

import pytest
from mitmproxy import version

from addon.proxy.patches.versions import is_known_version


@pytest.mark.parametrize(
    ("number", "is_known"),
    [
        ("12.2.3", True),
        ("12.10.0", True),
        ("12.2.0.dev", True),
        ("12.1.9", False),
        ("13.0.0", False),
        ("13", False),
        ("unknown", False),
    ],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, number: str, is_known: bool) -> None:
    monkeypatch.setattr(version, "VERSION", number)
    assert is_known_version() is is_known
