"""Edge (processes, pipes, the clock). A ledger on another machine, over the user's own `ssh`, as
git does: no server, no password of ours.

The far side runs `tokentee sync --stdio` (`serving.py`). It greets, and then answers one request at
a time. A message is its length in digits, a line end, and so many bytes of JSON:

    {"do": "open", "role": "source" | "target", "path": ..., "schema": ...}    {"secret_id": ...}
    {"do": "count"}                                {"count": ...}
    {"do": "known_after", "last": KEY | null}      {"known": [[opened_at, id, state, ...], ...]}
    {"do": "known_of", "keys": [KEY, ...]}         the same
    {"do": "read", "keys": [KEY, ...]}             {"bundle": {table: rows as JSON, ...}}
    {"do": "add", "keys": ..., "bundle": ...}      {"refused": [[KEY, why], ...]}
    {"do": "relink", "keys": ...}                  {}
    {"do": "secret"} · {"do": "take_secret", "secret": ...}

Nothing that comes from the far side is trusted: sizes, times and shapes are bounded, and of a
bundle only the rows that were asked for are taken. No part of the URL becomes an option or a word
of a shell: the path crosses as a message.
"""

import os
import re
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import orjson

from ledger.model.errors import LedgerError
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.keys import Key
from ledger.sync import bundles
from ledger.sync.bundles import Bundle, Known
from ledger.text.figures import seconds_text
from ledger.text.printable import mistyped_url, printable

type Role = Literal["source", "target"]

SCHEME = "ssh://"
GREETING = b"tokentee sync 1\n"
REMOTE_COMMAND = 'PATH="$PATH:$HOME/.local/bin" tokentee sync --stdio'
"""`~/.local/bin` is where `uv tool install` puts commands, and not on the path of a command over
ssh. Nothing of the user's goes in here."""
PREAMBLE_BYTES_MAX = 64 * 1024
"""What a shell's start-up files may print before the greeting."""
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""A bundle of 500 exchanges has 1 to 10 MB; more exchanges than fit are sent in two halves."""
SILENCE_SECONDS_MAX = 60
MESSAGE_SECONDS_MAX = 600
"""From a message's first byte to its last, so that one that trickles ends, too."""
KNOWN_MAX = 1_000
"""Twice what a far side lists at a time."""
GROWTH_MAX = 100_000
"""Exchanges that a far side may record while they are merged. One that lists more than that beyond
its own count is not believed."""
STDERR_BYTES_MAX = 4 * 1024
CLOSING_SECONDS_MAX = 60
"""For the far side to store the sums of its days."""
_URL = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[^\0]{0,4096})?",
    re.DOTALL,
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_ID_MAX = 1_024


def is_far(url: str) -> bool:
    """Whether a ledger is on another machine."""
    return url.startswith(SCHEME)


class Pipe:
    """Messages over two file descriptors, with bounds. A broken or silent one is a
    ConnectionError."""

    def __init__(self, reader: int, writer: int, *, silence_seconds_max: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_seconds_max = silence_seconds_max
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; OverflowError for one that is too long."""
        data = orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)  # names of tables are
        if len(data) > MESSAGE_BYTES_MAX:
            raise OverflowError
        self.write(b"%d\n%b" % (len(data), data))

    def write(self, data: bytes) -> None:
        """Write some bytes."""
        ready = select.poll()
        ready.register(self._writer, select.POLLOUT)
        # A pipe that is ready takes so many bytes at once.
        for at in range(0, len(data), select.PIPE_BUF):
            if not ready.poll(self._silence_seconds_max * 1_000):
                raise ConnectionError(
                    f"nothing was read for {seconds_text(self._silence_seconds_max)}"
                )
            try:
                os.write(self._writer, data[at : at + select.PIPE_BUF])
            except BrokenPipeError:
                raise ConnectionError("the connection ended") from None

    def receive(self) -> dict[str, Any]:
        """The next message."""
        until = time.monotonic() + MESSAGE_SECONDS_MAX
        while (end := self._buffer.find(b"\n", 0, 16)) < 0:
            if len(self._buffer) >= 16:
                raise ConnectionError("it sent something that is no message of tokentee")
            self._read(until)
        digits = bytes(self._buffer[:end])
        if not digits.isdigit() or int(digits) > MESSAGE_BYTES_MAX:
            raise ConnectionError("it sent something that is no message of tokentee")
        whole = end + 1 + int(digits)
        while len(self._buffer) < whole:
            self._read(until)
        data = bytes(self._buffer[end + 1 : whole])
        del self._buffer[:whole]
        try:
            message = orjson.loads(data)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise ConnectionError("it sent something that is no message of tokentee")
        return message

    def skip_to(self, mark: bytes) -> None:
        """Skip to behind a mark, which may stand behind an unfinished line of a shell."""
        until = time.monotonic() + MESSAGE_SECONDS_MAX
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > PREAMBLE_BYTES_MAX:
                raise ConnectionError("what came is no greeting of tokentee")
            self._read(until)
        del self._buffer[: at + len(mark)]

    def _read(self, until: float) -> None:
        ready = select.poll()
        ready.register(self._reader, select.POLLIN)
        seconds = min(self._silence_seconds_max, until - time.monotonic())
        if seconds <= 0 or not ready.poll(seconds * 1_000):
            raise ConnectionError(f"silent for {seconds_text(self._silence_seconds_max)}")
        data = os.read(self._reader, 1024 * 1024)
        if not data:
            raise ConnectionError("the connection ended")
        self._buffer += data


class FarLedger:
    """Asks the far side; each method is one question."""

    def __init__(self, pipe: Pipe, role: Role, path: str | None) -> None:
        self._pipe = pipe
        answer = self._ask("open", role=role, path=path, schema=REVISION)
        self.secret_id = answer.get("secret_id")
        """The id of the secret that its keys are hashed with."""
        self._listed = 0
        self._count: int | None = None

    def count(self) -> int:
        """How many exchanges it has."""
        count = self._ask("count").get("count")
        self._count = count if isinstance(count, int) and 0 <= count < 2**63 else 0
        return self._count

    def secret(self) -> bytes:
        """The secret that its keys are hashed with."""
        return secret_of(self._ask("secret"))

    def take_secret(self, secret: bytes) -> None:
        """Let it, if empty, hash keys with this secret."""
        answer = self._ask("take_secret", secret=secret.hex())
        self.secret_id = answer.get("secret_id")

    def known_after(self, last: Key | None) -> dict[Key, Known]:
        """The exchanges that follow in the order of keys."""
        found = _known_in(self._ask("known_after", last=last))
        keys = [*found]
        self._listed += len(keys)
        if keys != sorted(keys) or (last is not None and keys and keys[0] <= last):
            raise LedgerError("the far side lists its exchanges out of order")
        if self._count is not None and self._listed > self._count + GROWTH_MAX:
            raise LedgerError("the far side lists far more exchanges than it has")
        return found

    def known_of(self, keys: Sequence[Key]) -> dict[Key, Known]:
        """These exchanges, as far as it has them."""
        return _known_in(self._ask("known_of", keys=keys))

    def read(self, keys: Sequence[Key]) -> Bundle:
        """Everything that it knows of these exchanges."""
        answer = self._ask("read", keys=keys)
        if answer.get("is_too_long") and len(keys) > 1:
            half = len(keys) // 2
            return self.read(keys[:half]) + self.read(keys[half:])
        return bundle_of(answer.get("bundle"), keys)

    def add(
        self, keys: Sequence[Key], read: Callable[[Sequence[Key]], Bundle]
    ) -> list[tuple[Key, str]]:
        """Give it these exchanges; the ones that it refuses, and why."""
        bundle = {table.name: orjson.loads(rows) for table, _, rows in read(keys)}
        try:
            answer = self._ask("add", keys=keys, bundle=bundle)
        except OverflowError:
            if len(keys) == 1:
                return [(keys[0], "it is too long to be sent")]
            half = len(keys) // 2
            return self.add(keys[:half], read) + self.add(keys[half:], read)
        refused = answer.get("refused")
        return [
            (key, printable(str(one[1]))[:300])
            for one in (refused if isinstance(refused, list) else ())
            if isinstance(one, list) and len(one) == 2
            if (key := key_of(one[0])) is not None and key in keys
        ]

    def relink(self, keys: Sequence[Key]) -> None:
        """Let it finish what an interrupted merge may have left."""
        self._ask("relink", keys=keys)

    def _ask(self, do: str, **more: Any) -> dict[str, Any]:
        self._pipe.send({"do": do, **more})
        answer = self._pipe.receive()
        if "error" in answer:
            raise LedgerError(f"the far side says: {printable(str(answer['error']))[:500]}")
        return answer


@contextmanager
def connect(url: str, role: Role) -> Iterator[FarLedger]:
    """The ledger of an ssh URL, for a `with` block."""
    found = _URL.fullmatch(url)
    if found is None or int(found["port"] or 1) not in range(1, 65_536):
        raise LedgerError(
            f"not a ledger over ssh: {printable(mistyped_url(url))[:300]}; "
            "use ssh://[user@]host[:port][/path/to/ledger.sqlite3]"
        )
    options = ["-T", *(("-p", found["port"]) if found["port"] else ())]
    options += ["-l", found["user"]] if found["user"] else []
    command = ["ssh", *options, "--", found["host"].strip("[]"), REMOTE_COMMAND]
    try:
        process = subprocess.Popen(  # noqa: S603  # each word is a literal or fits `_URL`
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise LedgerError(f"ssh cannot be started: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    said = bytearray()
    listener = threading.Thread(target=_listen, args=(process, said), daemon=True)
    listener.start()
    reader, writer = process.stdout.fileno(), process.stdin.fileno()
    pipe = Pipe(reader, writer, silence_seconds_max=SILENCE_SECONDS_MAX)

    def reason(error: OSError) -> str:
        """What this side saw, and what ssh and the far side said last."""
        process.kill()
        listener.join(1)
        words = printable(" ".join(said.decode("utf-8", "replace").split()))[-300:]
        return f"{error} ({words})" if words else str(error)

    try:
        try:
            pipe.skip_to(GREETING)
            path = found["path"]
            far = FarLedger(pipe, role, path if path != "/" else None)
        except OSError as error:
            raise LedgerError(
                f"{found['host']} does not answer as tokentee over ssh: {reason(error)}"
            ) from error
        try:
            yield far
        except ConnectionError as error:
            raise ConnectionError(f"{found['host']}: {reason(error)}") from error
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
        listener.join(1)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def _listen(process: subprocess.Popen[bytes], said: bytearray) -> None:
    """Keep the end of what ssh and the far side say."""
    assert process.stderr is not None
    with suppress(OSError, ValueError):
        while data := os.read(process.stderr.fileno(), 4096):
            said += data
            del said[:-STDERR_BYTES_MAX]


def key_of(value: object) -> Key | None:
    """A key of the other side; None for anything else."""
    match value:
        case [str(opened_at), str(one)] if _MOMENT.fullmatch(opened_at) and len(one) <= _ID_MAX:
            return opened_at, one
    return None


def bundle_of(value: object, keys: Sequence[Key]) -> Bundle:
    """A bundle of the other side: of its rows those of these exchanges, if they have the form of
    rows."""
    wanted = {*keys}
    bundle: Bundle = []
    if not isinstance(value, dict):
        raise LedgerError("the far side sends something else than a bundle")
    for table, names in bundles.SENT.items():
        rows = value.get(table.name, [])
        its = (
            names.index("opened_at"),
            names.index("id" if table.name == "exchanges" else "exchange_id"),
        )
        if not isinstance(rows, list) or not all(
            isinstance(row, list)
            and len(row) == len(names)
            and all(value is None or isinstance(value, str | int) for value in row)
            for row in rows
        ):
            raise LedgerError(f"the far side sends something else than rows of {table.name}")
        chosen = [row for row in rows if (row[its[0]], row[its[1]]) in wanted]
        if chosen:
            bundle.append((table, names, orjson.dumps(chosen).decode()))
    return bundle


def _known_in(answer: dict[str, Any]) -> dict[Key, Known]:
    rows = answer.get("known")
    found: dict[Key, Known] = {}
    if not isinstance(rows, list) or len(rows) > KNOWN_MAX:
        raise LedgerError("the far side sends something else than a list of exchanges")
    for row in rows:
        key = key_of(row[:2]) if isinstance(row, list) and len(row) == 6 else None
        if key is None or row[2] not in bundles.STATES:
            raise LedgerError("the far side lists something else than exchanges")
        ids = (one if isinstance(one, str) else None for one in row[3:])
        found[key] = Known(row[2], *ids)
    return found


def secret_of(answer: dict[str, Any]) -> bytes:
    """The secret in a message."""
    try:
        return bytes.fromhex(answer["secret"])
    except (KeyError, TypeError, ValueError):
        raise LedgerError("the far side sends something else than a secret") from None
