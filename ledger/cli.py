"""Wiring. The ledger's commands, and the parts that all commands share.

Exit codes: 0 done, 1 the answer is no, 2 wrong call, 141 nobody reads the result. Machine formats
go to stdout, everything else to stderr.

A command is a row here and a function or `typer.Typer` in a module of its own. The module is
imported when the command is called: importing SQLAlchemy alone takes longer than `tokentee --help`
may.
"""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, TextIO, cast

from ledger.model.errors import EmptyLedgerError, LedgerError, NoLedgerError, WrongCallError
from ledger.part import commands_in
from ledger.settings.extras import missing_extra
from ledger.text.hints import as_typed, named_ledger
from ledger.text.printable import printable, without_passwords

UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EDQUOT)
"""Where a result goes nowhere: a full disk, a closed stream."""
NO_READER = 128 + 13
"""Exit code where the reader of a pipe has left, as `head -1` does: that of SIGPIPE, which is how
other programs end then, without a word."""
COMMANDS = (
    *commands_in(
        "ledger.commands",
        "Look",
        ("report", "report", "report", "Tokens, cache and cost by model, key, day, ..."),
        ("requests", "requests", "requests", "Single requests, the latest first, filtered"),
        ("show", "requests", "show", "Explain one request line by line"),
        ("top", "now", "top", "Running requests and today's cost, live"),
        ("statusline", "now", "statusline", "One line for Claude Code, tmux and prompts"),
    ),
    *commands_in(
        "ledger.commands",
        "Money",
        ("prices", "prices", "prices", "What a model costs; check a price file"),
        ("reprice", "prices", "reprice", "Price what has no price, with a price file"),
        ("names", "names", "names", "Who is behind keys, hosts, tags, projects"),
    ),
    *commands_in(
        "ledger.commands",
        "Operate",
        ("db", "db", "db_commands", "The ledger's schema: upgrade, current, check, describe, drop"),
    ),
)


def run(app: Callable[[], None], beside: Callable[[], str] = str) -> None:
    """Run a command. An error that the operator can fix prints one line and exits with 1, or with 2
    for a wrong call. `beside`: what could fill a ledger that is not there or empty, for that line.

    A result that cannot be written is such an error: the last of it is flushed here. What stands
    beside a result is best effort: a stderr that is closed or full changes no exit code.
    """
    stdout, stderr = sys.stdout, sys.stderr
    if stdout is None:
        sys.stdout = cast(TextIO, _Stream(None, is_needed=True))
    sys.stderr = cast(TextIO, _Stream(stderr, is_needed=False))
    try:
        _run(app, beside)
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        if stderr is not None:
            try:
                stderr.flush()
            except (OSError, ValueError):
                _leave(stderr)


def _run(app: Callable[[], None], beside: Callable[[], str]) -> None:
    stdout = sys.stdout
    try:
        try:
            app()
        except SystemExit:
            if sys.stdout is not stdout:  # Click's own end of a pipe without a reader
                raise BrokenPipeError from None
            raise
        finally:
            sys.stdout.flush()
    except WrongCallError as error:
        fail(str(error), 2)
    except NoLedgerError as error:
        fail(f"{error}{beside()}", 1)
    except EmptyLedgerError as error:
        fail(f"{error}{beside()}", 0)
    except LedgerError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:  # before a command handles Ctrl-C itself
        sys.exit(128 + signal.SIGINT)
    except ModuleNotFoundError as error:
        text = missing_extra(error)
        if text is None:
            raise
        fail(text, 1)
    except BrokenPipeError:
        _leave(sys.stdout)
        sys.exit(NO_READER)
    except OSError as error:
        if error.filename is None and isinstance(error, FileNotFoundError):
            fail("the current folder was removed: go to another one", 1)  # what getcwd raises
        if error.filename is None and error.errno in UNWRITABLE:
            _leave(sys.stdout)
            fail(f"the result could not be written: {error.strerror}", 1)
        if error.filename is None or error.strerror is None:
            raise
        fail(f"{error.filename}: {error.strerror}", 1)
    except UnicodeEncodeError:
        # Names of files may be any bytes; what is looked for in a ledger is text.
        odd = [word for word in sys.argv if word.encode(errors="ignore").decode() != word]
        if not odd:
            raise
        fail(f"not UTF-8: {odd[0]}", 2)
    except Exception as error:
        from ledger.store.engines import urls

        if (text := urls.failed(error)) is None:
            raise
        fail(text, 1)


class _Stream(io.TextIOBase):
    """A standard stream that may be closed or full. `is_needed`: to write to it fails then."""

    def __init__(self, stream: TextIO | None, *, is_needed: bool) -> None:
        self._stream = stream
        self._is_needed = is_needed

    def write(self, text: str) -> int:
        if self._is_needed:
            raise OSError(errno.EBADF, "standard output is closed")
        with suppress(OSError, ValueError):
            if self._stream is not None:
                return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError(errno.EBADF, "the stream is closed")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # as of the stream, which has one
        return "utf-8" if self._stream is None else self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        if self._stream is None:
            raise OSError(errno.EBADF, "the stream is closed")
        return self._stream.buffer


def _leave(stream: TextIO) -> None:
    """What is still buffered goes nowhere, or Python would fail over it once more at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(text: str, exit_code: int) -> None:
    """Print one line and exit."""
    text = printable(without_passwords(text))
    text = as_typed(text, os.environ, named_ledger(sys.argv))
    print(f"tokentee: {text}", file=sys.stderr)  # noqa: T201  # the one place that prints it
    sys.exit(exit_code)
