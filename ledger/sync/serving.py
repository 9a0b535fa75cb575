"""Wiring. The far side of a merge over ssh: `tokentee sync --stdio` (`far.py` has the messages)."""

from contextlib import ExitStack, suppress
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import URL

from ledger.model.errors import LedgerError
from ledger.store.engines import urls
from ledger.store.engines.sqlite_file import REVISION
from ledger.sync import far, merging
from ledger.sync.bundles import Known
from ledger.sync.merging import LocalSource, LocalTarget

type Place = URL | str
"""Where a ledger is: a URL, parsed or not."""

IDLE_SECONDS_MAX = 600
"""Between two requests the other side writes a bundle, or copies and migrates its ledger."""


def serve(reader: int, writer: int) -> Place | None:
    """Answer until the other side ends the connection; the ledger that it added to, if any."""
    pipe = far.Pipe(reader, writer, silence_seconds_max=IDLE_SECONDS_MAX)
    target: Place | None = None
    try:
        pipe.write(far.GREETING)
        with ExitStack() as stack:
            request = pipe.receive()
            url = _named(request)
            if request.get("role") == "source":
                ledger: LocalSource | LocalTarget = stack.enter_context(merging.source_at(url))
            else:
                ledger = stack.enter_context(merging.target_at(url))
                target = url
            pipe.send({"secret_id": ledger.secret_id})
            while True:
                answer = _answer(ledger, pipe.receive())
                try:
                    pipe.send(answer)
                except OverflowError:
                    pipe.send({"is_too_long": True})
    except ConnectionError:
        pass  # the other side has all, or was cut off and comes again
    except (LedgerError, sa.exc.DBAPIError) as error:
        is_ours = isinstance(error, LedgerError)
        with suppress(OSError):
            pipe.send({"error": str(error) if is_ours else merging.reason_of(error)})
    return target


def _named(request: dict[str, Any]) -> Place:
    """The ledger that the other side names: a file, or this side's own."""
    schema, path = request.get("schema"), request.get("path")
    if request.get("do") != "open" or schema != REVISION:
        raise LedgerError(
            f"this side has tokentee for {REVISION}, the other one for {schema}: "
            "install the same version on both"
        )
    if isinstance(path, str):
        return URL.create("sqlite", database=path)
    return urls.default_url()


def _answer(ledger: LocalSource | LocalTarget, request: dict[str, Any]) -> dict[str, Any]:
    given = request.get("keys")
    keys = [key for one in given or () if (key := far.key_of(one)) is not None]
    match ledger, request.get("do"):
        case LocalSource(), "count":
            return {"count": ledger.count()}
        case LocalSource(), "known_after":
            return _listed(ledger.known_after(far.key_of(request.get("last"))))
        case LocalSource(), "read":
            return {"bundle": {one.name: orjson.loads(rows) for one, _, rows in ledger.read(keys)}}
        case LocalSource(), "secret":
            return {"secret": ledger.secret().hex()}
        case LocalTarget(), "known_of":
            return _listed(ledger.known_of(keys))
        case LocalTarget(), "add":
            bundle = request.get("bundle")
            refused = ledger.add(keys, lambda chosen: far.bundle_of(bundle, chosen))
            return {"refused": refused}
        case LocalTarget(), "relink":
            ledger.relink(keys)
            return {}
        case LocalTarget(), "take_secret":
            ledger.take_secret(far.secret_of(request))
            return {"secret_id": ledger.secret_id}
    raise LedgerError("the other side sent an unknown request: install the same version on both")


def _listed(known: dict[tuple[str, str], Known]) -> dict[str, Any]:
    return {
        "known": [
            [*key, one.state, one.readings, one.pricings, one.quotas] for key, one in known.items()
        ]
    }
