"""What an error suggests: the nearest known word, the package to install."""

import pytest

from ledger.text.hints import missing_extra, suggestion

WORDS = ("model", "provider", "key", "session")


@pytest.mark.parametrize(
    ("word", "added"),
    [
        ("modle", "; did you mean 'model'?"),
        ("Models", "; did you mean 'model'?"),
        ("sesion", "; did you mean 'session'?"),
        ("keys", "; did you mean 'key'?"),
        ("zzz", ""),
        ("m" * 10**6, ""),
    ],
)
def test_the_nearest_word(word, added):
    assert suggestion(word, WORDS) == added


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("pyarrow.parquet", "tokentee[parquet]"),
        ("psycopg", "tokentee[postgresql]"),
        ("distributed", "tokentee[dask]"),
        ("fsspec.core", "tokentee[dask]"),
        ("s3fs", "tokentee[s3]"),
        ("mcp.server.fastmcp", "tokentee[mcp]"),
    ],
)
def test_the_extra_is_named(name: str, extra: str):
    text = missing_extra(ModuleNotFoundError(name=name))
    assert text is not None
    assert extra in text


@pytest.mark.parametrize("name", ["mitmproxy", None])
def test_anything_else_is_no_extra(name: str | None):
    assert missing_extra(ModuleNotFoundError(name=name)) is None


def test_what_an_error_adds():
    assert suggestion("modle", WORDS) == "; did you mean 'model'?"
    assert suggestion("zzz", WORDS) == ""
    assert suggestion("m" * 10**6, WORDS) == ""
