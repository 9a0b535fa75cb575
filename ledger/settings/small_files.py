"""Edge. Files that operators write or download: where they lie, and reading them whole, up to a
size, with errors in one line.

Every such file is read here. So a path to a dump or a device is refused before it fills the memory,
and all errors have the same wording.
"""

import errno
import os
import re
import stat
import tempfile
from pathlib import Path

import platformdirs

from ledger.model.errors import LedgerError
from ledger.text.printable import printable

FILE_BYTES_MAX = 4 * 1024 * 1024
"""Far more than an operator writes by hand."""
WRONG_FILE = "check that it is the right file"
_IS_OPEN = re.compile(r"/dev/fd/\d+|/dev/stdin|/proc/(self|\d+)/fd/\d+")
"""What somebody has opened for us, as in `<(command)`."""


SYSTEM_FOLDER = Path("/etc/tokentee")


def config_directory() -> Path:
    """The user's folder for tokentee's settings; the system's for a user without a home."""
    try:
        return platformdirs.user_config_path("tokentee", appauthor=False)
    except RuntimeError:
        return SYSTEM_FOLDER


def data_directory() -> Path:
    """The user's folder for tokentee's data. LedgerError: the user has no home."""
    try:
        return platformdirs.user_data_path("tokentee", appauthor=False)
    except RuntimeError:
        raise LedgerError("this user has no home folder: set HOME or XDG_DATA_HOME") from None


def expanded(named: str) -> Path:
    """A path with the home that a `~` in front stands for. LedgerError: there is no such home."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        raise LedgerError(
            f"there is no home folder for {named}: set HOME, or name a whole path"
        ) from None


def file_in_force(named: str | None, variable: str, file_name: str) -> Path | None:
    """The file that an option or this variable names, or what has this name in the settings folder,
    also if it cannot be read: it was meant."""
    if named or (named := os.environ.get(variable)):
        return Path(named)
    found = config_directory() / file_name
    return found if os.path.lexists(found) else None


def read_bytes(
    path: Path, kind: str, *, bytes_max: int = FILE_BYTES_MAX, advice: str = WRONG_FILE
) -> bytes:
    """The content of a file; LedgerError if it cannot be read or is larger than `bytes_max`.

    In the error, `kind` names the expected kind of file, and `advice` tells what to do about a file
    of another kind.
    """
    shown = printable(str(path))
    try:
        data = first_bytes(path, bytes_max + 1)
    except OSError as error:
        raise LedgerError(f"cannot read the {kind} {shown}: {error.strerror}") from None
    except ValueError as error:  # a path with a zero byte
        raise LedgerError(f"cannot read the {kind} {shown}: {error}") from None
    if len(data) > bytes_max:
        is_large = bytes_max >= 1024 * 1024
        bound = f"{bytes_max >> 20} MiB" if is_large else f"{bytes_max} bytes"
        raise LedgerError(f"{shown} is not a {kind}: it is larger than {bound}; {advice}")
    return data


def read_text(
    path: Path, kind: str, *, bytes_max: int = FILE_BYTES_MAX, advice: str = WRONG_FILE
) -> str:
    """The same for a file of UTF-8 text."""
    data = read_bytes(path, kind, bytes_max=bytes_max, advice=advice)
    return text_of(data, path, kind, advice=advice)


def text_of(data: bytes, path: Path, kind: str, *, advice: str = WRONG_FILE) -> str:
    """The text of a file with this content; LedgerError if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = printable(str(path))
        raise LedgerError(
            f"{shown} is not a {kind}: not UTF-8 text at byte {error.start}; {advice}"
        ) from None


def write_whole(path: Path, data: bytes) -> None:
    """Put this in place of a file, whole or not at all, also after a power cut; its owner alone can
    read it. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:  # its mode is 0600
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the name is there, too
    finally:
        os.close(folder)


def first_bytes(path: Path, bytes_max: int) -> bytes:
    """The first bytes of a file. Raises OSError, also for a pipe and a terminal, whose other side
    may never write, and ValueError for a path with a zero byte."""
    flags = 0 if _IS_OPEN.fullmatch(str(path)) else os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        if flags and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe")
        with open(descriptor, "rb", closefd=False) as file:
            data: bytes | None = file.read(bytes_max)
    finally:
        os.close(descriptor)
    if data is None:
        raise OSError(errno.EINVAL, "it is a device that has nothing to read")
    return data
