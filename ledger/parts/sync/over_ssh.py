"""Edge (processes, the clock). A merge with a ledger on another machine, over the user's own `ssh`,
as git does: no server, no password of ours.

One side writes a stream (`tokentee sync --dump`), the other one reads it (`tokentee sync -`). Each
line is a `SyncLine` in JSON, the first one behind `MARK`, for a shell may print something before
it.

A bundle is idempotent, so a stream that was cut is repeated without loss or doubles. Nothing that
comes is trusted: sizes, silence and shapes are bounded, and a bundle gives rows of its keys alone.
No part of a URL becomes an option or a word of a shell: the path crosses in a line.
"""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from itertools import chain
from typing import IO, Annotated, Any
from urllib.parse import unquote

import msgspec
import orjson
import sqlalchemy as sa
from msgspec import Meta
from sqlalchemy.engine import URL

from ledger.model.errors import LedgerError
from ledger.parts.sync import bundles, merging
from ledger.parts.sync.bundles import Bundle
from ledger.parts.sync.merging import BUNDLE_EXCHANGES_MAX, Merged
from ledger.store import db, secret
from ledger.store.engines import urls
from ledger.store.engines.refusals import reason_of
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.keys import Key
from ledger.store.spool import RefusedExchange
from ledger.store.tables import exchanges
from ledger.text.figures import seconds_text
from ledger.text.printable import mistyped_url, printable

SCHEME = "ssh://"
MARK = b"tokentee sync 3 "
_OTHER_MARK = re.compile(rb"tokentee sync [0-9]+ \{")
COMMAND = 'PATH="$PATH:$HOME/.local/bin" tokentee sync '
"""`~/.local/bin` is where `uv tool install` puts commands, and not on the path of a command over
ssh. Nothing of the user's goes in here."""
PREAMBLE_BYTES_MAX = 64 * 1024
"""What a shell's start-up files may print."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A bundle of 500 exchanges has 1 to 10 MB; more exchanges than fit are sent in two halves."""
PIECE_BYTES = 64 * 1024
"""Each is taken within `SILENCE_SECONDS_MAX`."""
SILENCE_SECONDS_MAX = 60
CLOSING_SECONDS_MAX = 60
"""For the far side to store the sums of its days."""
GROWTH_MAX = 100_000
"""Exchanges that the other side may record while it writes."""
_SAME_VERSION = "install the same version on both"
_URL = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[^\0]{0,4096})?",
    re.DOTALL,
)

type Progress = Callable[[int, int], None]
type Write = Callable[[bytes], object]
type StreamKey = tuple[
    Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{15}Z$")],
    Annotated[str, Meta(max_length=1_024)],
]
type Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
type Rows = list[list[str | Integer | bool | None]]


class SyncLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a stream. What it is about says which fields it has."""

    # The first line; `ledger` names a file of the side that reads it, None its own ledger.
    schema: str | None = None
    count: int = 0
    secret_id: str | None = None
    secret: Annotated[str, Meta(pattern="^([0-9a-f]{2})+$")] | None = None
    ledger: str | None = None
    with_secret: bool = False
    # A bundle: the rows of each table.
    keys: Annotated[list[StreamKey], Meta(max_length=BUNDLE_EXCHANGES_MAX)] = []
    is_too_long: bool = False
    exchanges: Rows = []
    readings: Rows = []
    pricings: Rows = []
    segments: Rows = []
    quotas: Rows = []
    # The last line, of either side.
    end: bool = False
    merged: Merged | None = None
    error: str | None = None


_message_in = msgspec.json.Decoder(SyncLine).decode


def merge(source: str, target: str, *, with_secret: bool, on_progress: Progress) -> Merged:
    """Merge two ledgers, one of which is that of an ssh URL."""
    if source.startswith(SCHEME):
        with _ssh(source, "--dump -") as (path, far, stream):
            send(far.sendall, {"ledger": path, "with_secret": with_secret}, MARK)
            return load(messages(stream), target, on_progress)
    with _ssh(target, "-") as (path, far, stream):
        # Where the far side reads no further, it says why.
        with suppress(ConnectionError, TimeoutError):
            dump(source, far.sendall, on_progress, with_secret=with_secret, ledger=path)
        answer = next(messages(stream))
    if answer.merged is None:
        raise LedgerError("the other side does not say what it has added")
    return answer.merged


def dump(
    source: str | URL,
    write: Write,
    on_progress: Progress = lambda *_: None,
    *,
    with_secret: bool = False,
    ledger: str | None = None,
) -> None:
    """Write the stream of a ledger; `ledger`: the file of the other side, None: its own."""
    with merging.opened_source(source) as (engine, connection):
        total, done, last = merging.count(connection), 0, None
        head = {"schema": REVISION, "count": total, "secret_id": secret.id_in(engine)}
        if with_secret:
            head["secret"] = merging.secret_of(engine).hex()
        send(write, head | {"ledger": ledger}, MARK)
        while batch := [*bundles.known_after(connection, last, BUNDLE_EXCHANGES_MAX)]:
            waiting = [batch]
            while waiting:
                keys = waiting.pop()
                # PostgreSQL puts line ends between rows; those within a text are escaped.
                rows = {
                    table.name: orjson.Fragment(text.replace("\n", " "))
                    for table, _, text in bundles.read(connection, keys)
                }
                if send(write, {"keys": keys, **rows}):
                    continue
                if len(keys) == 1:
                    send(write, {"keys": keys, "is_too_long": True})
                else:
                    waiting += [keys[len(keys) // 2 :], keys[: len(keys) // 2]]
            last, done = batch[-1], done + len(batch)
            on_progress(done, max(total, done))
        send(write, {"end": True})


def load(stream: Iterator[SyncLine], target: str | URL, on_progress: Progress) -> Merged:
    """Add what a stream brings to a ledger."""
    head, done, refused, months = next(stream), 0, list[RefusedExchange](), set[date]()
    if head.schema != REVISION:
        raise LedgerError(
            f"this side has tokentee for {REVISION}, the other one for {head.schema}: "
            + _SAME_VERSION
        )
    ensured = db.ensure(target, answer_seconds_max=merging.ANSWER_SECONDS_MAX)
    with db.disposing(ensured) as engine:
        if head.secret is not None:
            merging.take_secret(engine, bytes.fromhex(head.secret))
        ids = head.secret_id, secret.id_in(engine)
        try:
            while not (bundle := next(stream)).end:
                if not bundle.keys or done > head.count + GROWTH_MAX:
                    raise LedgerError("the other side sends more than the exchanges that it has")
                if bundle.is_too_long:
                    refused += [
                        RefusedExchange(key, "it is too long to be sent") for key in bundle.keys
                    ]
                else:
                    read = partial(rows_of, bundle)
                    refused += merging.deliver(read, engine, bundle.keys, months)
                done += len(bundle.keys)
                on_progress(done, max(head.count, done))
        except ConnectionError as error:
            raise ConnectionError(f"interrupted after {done} exchanges: {error}") from error
    has_two_secrets = None not in ids and ids[0] != ids[1]
    return Merged(exchanges=done, refused=tuple(refused), has_two_secrets=has_two_secrets)


def answer(stream: IO[bytes], write: Write, *, is_dump: bool) -> URL | None:
    """The far side of `merge`; the ledger that it added to, if any."""
    lines = messages(stream)
    try:
        head = next(lines)
        path = head.ledger
        ledger = URL.create("sqlite", database=path) if path else urls.parse_url(urls.default_url())
        if is_dump:
            dump(ledger, write, with_secret=head.with_secret)
            return None
        merged = load(chain([head], lines), ledger, lambda *_: None)
    except ConnectionError:
        return None  # the other side was cut off, and comes again
    except (LedgerError, sa.exc.DBAPIError) as error:
        text = str(error) if isinstance(error, LedgerError) else reason_of(error)
        send(write, {"error": text}, MARK)
        return None
    send(write, {"merged": merged}, MARK)
    return ledger


def rows_of(message: SyncLine, keys: Sequence[Key]) -> Bundle:
    """The rows of these exchanges in a message."""
    bundle: Bundle = []
    for table, names in bundles.SENT.items():
        rows: Rows = getattr(message, table.name)
        if any(len(row) != len(names) for row in rows):
            raise LedgerError("the other side sends rows of another form")
        at = names.index("opened_at")
        its_id = names.index("id" if table is exchanges else "exchange_id")
        chosen = [row for row in rows if (row[at], row[its_id]) in {*keys}]
        if chosen:
            bundle.append((table, names, orjson.dumps(chosen).decode()))
    return bundle


def messages(stream: IO[bytes]) -> Iterator[SyncLine]:
    """The lines of a stream, behind its mark. One that ends or is silent is a ConnectionError; one
    that states an error or has another form is a LedgerError."""
    line, passed = _line(stream), 0
    while MARK not in line:
        if _OTHER_MARK.search(line):
            raise LedgerError(f"the other side has another stream: {_SAME_VERSION}")
        passed += len(line)
        if passed > PREAMBLE_BYTES_MAX:
            raise ConnectionError("no tokentee answers there")
        line = _line(stream)
    line = line.partition(MARK)[2]
    while True:
        try:
            message = _message_in(line)
        except msgspec.DecodeError as error:
            raise LedgerError(
                f"the other side sends something else than a stream; {_SAME_VERSION}"
            ) from error
        if message.error is not None:
            raise LedgerError(f"the other side says: {printable(message.error)[:500]}")
        yield message
        line = _line(stream)


def _line(stream: IO[bytes]) -> bytes:
    try:
        line = stream.readline(LINE_BYTES_MAX)
    except TimeoutError:
        raise ConnectionError(f"silent for {seconds_text(SILENCE_SECONDS_MAX)}") from None
    except ConnectionResetError:
        line = b""
    if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        raise ConnectionError("the connection ended")
    return line


def send(write: Write, message: dict[str, Any], mark: bytes = b"") -> bool:
    """Write a line; False: it is too long."""
    # The names of tables are strings of a class of their own.
    data = mark + orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS) + b"\n"
    if len(data) > LINE_BYTES_MAX:
        return False
    for at in range(0, len(data), PIECE_BYTES):
        write(data[at : at + PIECE_BYTES])
    return True


@contextmanager
def _ssh(url: str, words: str) -> Iterator[tuple[str | None, socket.socket, IO[bytes]]]:
    """The path in an ssh URL, and what is written to and read from its machine, for a `with`
    block. What ssh itself has to say goes where our own errors go."""
    found = _URL.fullmatch(url)
    path = unquote(found["path"] or "/") if found else ""
    if found is None or int(found["port"] or 1) not in range(1, 65_536) or "\0" in path:
        raise LedgerError(
            f"not a ledger over ssh: {printable(mistyped_url(url))[:300]}; "
            "use ssh://[user@]host[:port][/path/to/ledger.sqlite3]"
        )
    options = ["-p", found["port"]] if found["port"] else []
    options += ["-l", found["user"]] if found["user"] else []
    host: str = found["host"].strip("[]")
    command: list[str] = ["ssh", "-T", "-C", *options, "--", host, COMMAND + words]
    ours, theirs = socket.socketpair()
    ours.settimeout(SILENCE_SECONDS_MAX)
    with ours, ours.makefile("rb") as reader:
        try:
            with theirs:
                process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())  # noqa: S603  # each word is a literal or fits `_URL`
        except OSError as error:
            raise LedgerError(f"ssh cannot be started: {error.strerror}") from error
        try:
            yield path if path != "/" else None, ours, reader
            with suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
            process.wait(CLOSING_SECONDS_MAX)
        except ConnectionError as error:
            # The system's own words are those of a pipe or a socket.
            reason = "the connection ended" if error.errno else error
            raise LedgerError(
                f"{host}: {reason}; run it again, what is done is not done twice"
            ) from error
        except subprocess.TimeoutExpired:
            pass  # all is there; the sums of days are stored by whoever needs them first
        finally:
            process.kill()
            process.wait()
