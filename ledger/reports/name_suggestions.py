"""Database. A names file for keys without a team, as comments to fill in."""

import json
from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy.engine import Engine

from ledger.figures.figures import ReportRow
from ledger.figures.queries import report
from ledger.store.scope import NO_VALUE, Scope
from ledger.text.figures import counted, money
from ledger.text.origins import shown_origin
from ledger.text.printable import printable

KEYS_MAX = 200
"""Number of suggested keys; the costliest come first."""
FINGERPRINT_CHARACTERS = 12
"""Characters of a fingerprint that identify one key in a file."""


def suggestions(engine: Engine, scope: Scope) -> Iterator[str]:
    """The lines of a file with one `[[name]]` for each key whose requests have no team."""
    unnamed = scope
    if scope.names.for_words(("team",)):
        unnamed = replace(scope, only=(*scope.only, ("team", NO_VALUE)))
    rows = report(engine, ("key", "origin"), unnamed).rows
    by_key: dict[str, list[ReportRow]] = {}
    for row in rows:
        if row.key[0] is not None:
            by_key.setdefault(row.key[0], []).append(row)
    for fingerprint, found in list(by_key.items())[:KEYS_MAX]:
        requests = sum(row.figures.requests for row in found)
        cost = sum(row.figures.cost_picousd or 0 for row in found)
        hosts = ", ".join(dict.fromkeys(printable(shown_origin(row.key[1] or "")) for row in found))
        hint = next((row.hint for row in found if row.hint), None)
        ends = f"ends in {printable(hint)}, " if hint else ""
        yield f"# {ends}{counted(requests, 'request')}, {money(cost)}, at {hosts}"
        yield "# [[name]]"
        yield f"# key = {json.dumps(fingerprint[:FINGERPRINT_CHARACTERS])}"
        yield '# name = ""'
        yield '# team = ""'
        yield ""
