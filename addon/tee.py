"""Wiring. The script for `mitmdump -s addon/tee.py`; everything else is in the package."""

import logging
import sys

addons: list[object] = []
try:
    from addon.proxy.recorder import Recorder
    from addon.run.seen import ScriptBill
except (ImportError, SyntaxError) as missing:
    # An ERROR while mitmproxy starts ends the start with this one line and exit code 1.
    if sys.version_info < (3, 12):  # noqa: UP036  # an older mitmproxy runs there, and loads this file
        logging.error(  # noqa: TRY400  # a traceback would bury the one line that helps
            "tokentee: Python %d.%d is too old for it, which needs 3.12. Run `uv run --python 3.12 "
            "mitmdump -s addon/tee.py`.",
            *sys.version_info[:2],
        )
    elif isinstance(missing, SyntaxError):
        raise
    elif getattr(sys, "frozen", False):
        logging.error(  # noqa: TRY400  # a traceback would bury the one line that helps
            "tokentee: this mitmproxy is a standalone binary, which cannot import packages. "
            "Run `uv run mitmdump -s addon/tee.py` in a clone, or install both from it: "
            "`uv tool install --with-executables-from mitmproxy CLONE`."
        )
    else:
        logging.error(  # noqa: TRY400
            "tokentee: cannot import %s (%s). Install the project into the environment that "
            "mitmdump runs in: `uv run mitmdump -s addon/tee.py` does so.",
            (missing.name or "").partition(".")[0],
            missing,
        )
else:
    recorder = Recorder()
    addons = [recorder, ScriptBill(recorder)]
