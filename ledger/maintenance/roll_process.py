"""Wiring. Makes the sums of a ledger's days in a process of its own: `python -m ... URL`.

The keeper of a proxy starts it. Its errors and notes go to stderr, a line each.
"""

import os
import sys
from datetime import UTC, datetime

from ledger.maintenance import rollup
from ledger.model.errors import LedgerError
from ledger.store import db

NICENESS = 10
"""A proxy on the same core comes first."""


def main() -> int:
    """Make the sums that are missing; returns the exit code."""
    os.nice(NICENESS)
    try:
        with db.disposing(db.ensure(sys.argv[1])) as engine:
            rollup.roll(engine, now=datetime.now(UTC), log=_print)
    except LedgerError as error:
        _print("error", str(error))
        return 1
    return 0


def _print(_level: str, line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
