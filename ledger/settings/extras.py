"""Edge. The extras of this installation: what a missing package needs, as a command that adds it
and keeps what is there."""

import json
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

EXTRAS = {
    "pyarrow": "parquet",
    "psycopg": "postgresql",
    "psycopg_binary": "postgresql",
    "dask": "dask",
    "distributed": "dask",
    "fsspec": "dask",
    "s3fs": "s3",
    "opentelemetry": "otel",
}
"""Package -> the extra that installs it."""
PACKAGES = {
    "parquet": ("pyarrow",),
    "postgresql": ("psycopg",),
    "dask": ("distributed", "fsspec"),
    "s3": ("s3fs",),
    "otel": ("opentelemetry",),
}
"""Extra -> the packages by which it is recognised; all of them are there."""
CLONE = "CLONE"
"""A place that is not known. An index may have another project under our name, so what is installed
is a clone or a wheel."""


def needs(package: str) -> str:
    """The message for a package of `EXTRAS` that is not installed."""
    extra = EXTRAS[package]
    place, is_editable = _source()
    named = shlex.quote(f"{place}[{','.join(sorted({extra, *installed()}))}]")
    if is_editable:
        named = f"-e {named}"
    if Path(sys.prefix, "uv-receipt.toml").exists():  # of `uv tool install`, which installs anew
        command = f"uv tool install --with-executables-from mitmproxy {named}"
    elif "UV_RUN_RECURSION_DEPTH" in os.environ:  # uv sets it for what it runs
        command, place = f"uv sync --inexact --extra {extra}", ""
    elif find_spec("pip") is not None:
        command = f"{shlex.quote(sys.executable)} -m pip install {named}"
    else:
        python = shlex.quote(sys.executable)
        command = f"uv pip install --python {python} {named}"
    meant = " (CLONE: the clone, or a wheel)" if place == CLONE else ""
    return (
        f"this needs {package}, which is not installed; with tokentee[{extra}] it is: "
        f"{command}{meant}"
    )


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The same for a failed import; None if no extra installs the package."""
    package = (error.name or "").partition(".")[0]
    return needs(package) if package in EXTRAS else None


def installed() -> list[str]:
    """The extras whose packages are there."""
    return [extra for extra, names in PACKAGES.items() if all(map(_is_there, names))]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a module that was made without a specification, or None in `sys.modules`
        return False


def _source() -> tuple[str, bool]:
    """The clone or wheel that this was installed from (PEP 610), if it is still there; and whether
    it is run from there."""
    from importlib import metadata  # 15 ms, which no command should pay that lacks nothing

    try:
        text = metadata.distribution("tokentee").read_text("direct_url.json") or "{}"
        found = json.loads(text)
        url = urlsplit(found.get("url", ""))
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return CLONE, False
    path = unquote(url.path)
    if url.scheme != "file" or not Path(path).exists():
        return CLONE, False
    return path, bool(found.get("dir_info", {}).get("editable"))
