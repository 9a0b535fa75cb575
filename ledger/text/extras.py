"""Pure. Packages that are installed on request: `pip install 'tokentee[parquet]'`."""

EXTRAS = {
    "pyarrow": "parquet",
    "psycopg": "postgresql",
    "psycopg_binary": "postgresql",
    "dask": "dask",
    "distributed": "dask",
    "fsspec": "dask",
    "s3fs": "s3",
}
"""Package -> the extra that brings it."""


def needs(package: str) -> str:
    """What to tell the operator about a package of `EXTRAS` that is not installed."""
    return (
        f"this needs {package}, which is not installed: pip install 'tokentee[{EXTRAS[package]}]'"
    )


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The same for an import that failed; None if the package is no extra's."""
    package = (error.name or "").partition(".")[0]
    return needs(package) if package in EXTRAS else None
