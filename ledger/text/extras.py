"""Pure. Packages that are installed on request: `pip install 'tokentee[parquet]'`."""

EXTRAS = {
    "pyarrow": "parquet",
    "psycopg": "postgresql",
    "psycopg_binary": "postgresql",
    "dask": "dask",
    "distributed": "dask",
    "fsspec": "dask",
    "s3fs": "s3",
    "mcp": "mcp",
}
"""Package -> the extra that installs it."""


def needs(package: str) -> str:
    """The message for a package of `EXTRAS` that is not installed."""
    return (
        f"this needs {package}, which is not installed: pip install 'tokentee[{EXTRAS[package]}]'"
    )


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The same for a failed import; None if no extra installs the package."""
    package = (error.name or "").partition(".")[0]
    return needs(package) if package in EXTRAS else None
