"""Edge. Writes the files of one kind of deployment into a folder."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from addon.deploy.kinds import KINDS, install_of_wheel
from ledger.settings.small_files import first_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of a deployment."""

    path: Path
    is_new: bool
    """False: the same file existed already."""


class Occupied(Exception):  # noqa: N818  # it lists files, and the command words the error
    """Existing files have other content."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        super().__init__(", ".join(map(str, self.paths)))


def write(
    kind: str, folder: Path, *, force: bool = False, wheel: Path | None = None
) -> list[Written]:
    """Write the files of a kind into a folder.

    An existing file with the same content is left alone. One with other content raises `Occupied`,
    before anything is written, unless `force` is set. `wheel` is copied beside the Dockerfile,
    which then installs it instead of a package of an index. Raises OSError.
    """
    texts = {folder / name: text() for name, text in KINDS[kind].items()}
    if wheel is not None:
        dockerfile = folder / "Dockerfile"
        lines = texts[dockerfile].splitlines(keepends=True)
        texts[dockerfile] = "".join(
            f"{install_of_wheel(wheel.name)}\n" if line.startswith("RUN pip install") else line
            for line in lines
        )
    there = {path for path, text in texts.items() if path.exists() and _differs(path, text)}
    if there and not force:
        raise Occupied(sorted(there))
    written = []
    for path, text in texts.items():
        is_new = not path.exists() or path in there
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        written.append(Written(path=path, is_new=is_new))
    if wheel is not None and wheel.parent.resolve() != folder.resolve():
        shutil.copyfile(wheel, folder / wheel.name)
        written.append(Written(path=folder / wheel.name, is_new=True))
    return written


def _differs(path: Path, text: str) -> bool:
    """Whether the file is anything but this text; no more of it is read than that takes."""
    ours = text.encode()
    try:
        return first_bytes(path, len(ours) + 1) != ours
    except OSError:
        return True
