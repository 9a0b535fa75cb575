"""Values that the logs share."""

import pytest

from addon.agent_logs.call import folder_name, moment, text_or_none


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/ada/app", "app"),
        ("C:\\work\\app\\", "app"),
        ("app", "app"),
        ("/", None),
        (3, None),
        ("x" * 300, "x" * 100),
    ],
)
def test_folders(path, name):
    assert folder_name(path) == name


@pytest.mark.parametrize(
    "text", ["2026-11-02T12:00:00", "0001-01-01T00:00:00Z", "soon", None, 1_700_000_000]
)
def test_what_is_no_moment(text):
    assert moment(text) is None


def test_texts():
    assert [text_or_none(value) for value in ("a", "", None, 1)] == ["a", None, None, None]
