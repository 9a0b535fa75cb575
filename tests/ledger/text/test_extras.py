"""Packages that are installed on request."""

import pytest

from ledger.text.extras import missing_extra


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("pyarrow.parquet", "tokentee[parquet]"),
        ("psycopg", "tokentee[postgresql]"),
        ("distributed", "tokentee[dask]"),
        ("fsspec.core", "tokentee[dask]"),
        ("s3fs", "tokentee[s3]"),
    ],
)
def test_the_extra_is_named(name: str, extra: str):
    text = missing_extra(ModuleNotFoundError(name=name))
    assert text is not None
    assert extra in text


@pytest.mark.parametrize("name", ["mitmproxy", None])
def test_anything_else_is_no_extra(name: str | None):
    assert missing_extra(ModuleNotFoundError(name=name)) is None
