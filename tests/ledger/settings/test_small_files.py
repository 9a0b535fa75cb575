"""Files of operators are asked what they are, and read whole up to a bound."""

import errno
import os
from pathlib import Path

import pytest

from ledger.model.errors import LedgerError
from ledger.parts.budgets import budgets_file
from ledger.pricing import overrides
from ledger.settings import names_file, small_files
from tests.named import for_each


@pytest.mark.timeout(20)
def test_a_pipe_and_a_terminal_are_refused_and_one_that_is_open_already_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, type(pipe)(f"/proc/self/root{pipe}")):
        with pytest.raises(LedgerError, match=r"cannot read the names file .*pipe: it is a pipe"):
            small_files.read_text(path, "names file")
    terminal, other = os.openpty()
    try:
        with pytest.raises(LedgerError, match="it is a device that has nothing to read"):
            small_files.read_text(type(pipe)(os.ttyname(other)), "names file")
    finally:
        os.close(terminal)
        os.close(other)
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    try:
        path = type(pipe)(f"/dev/fd/{reader}")
        assert small_files.read_text(path, "names file") == "text"
    finally:
        os.close(reader)


@for_each(
    "content, said",
    [
        (b"12345678", None),
        (b"123456789", "larger than 8 bytes; look again"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_file_is_read_up_to_its_bound(tmp_path, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    if said is None:
        assert small_files.read_text(path, "kind", bytes_max=8) == content.decode()
    else:
        with pytest.raises(LedgerError, match=said):
            small_files.read_text(path, "kind", bytes_max=8, advice="look again")


@for_each("name", ["gone", "folder", "zero\0byte"])
def test_what_cannot_be_read_is_one_line(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match="cannot read the kind") as caught:
        small_files.read_bytes(tmp_path / name, "kind")
    assert "\n" not in str(caught.value)


def test_a_file_is_replaced_whole_for_its_owner_alone(tmp_path):
    path, kept = tmp_path / "list.json", tmp_path / "kept.json"
    path.write_text("before")
    kept.hardlink_to(path)
    small_files.write_whole(path, b"after")
    assert (path.read_text(), kept.read_text()) == ("after", "before")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == [kept, path]


@for_each("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_replaced_stays_alone(tmp_path, monkeypatch, step):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    path = tmp_path / "list.json"
    path.write_text("before")
    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[step], full)
    with pytest.raises(OSError, match="no space left"):
        small_files.write_whole(path, b"after")
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


@for_each(
    "load, name",
    [
        (overrides.load, "prices.toml"),
        (names_file.load, "names.toml"),
        (budgets_file.load, "budgets.toml"),
    ],
)
@for_each("kind", ["pipe", "folder", "dangling"])
def test_what_lies_in_the_settings_folder_is_not_ignored(tmp_path, monkeypatch, load, name, kind):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "tokentee" / name
    file.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("gone")
    with pytest.raises(LedgerError, match=f"cannot read the .*{name}"):
        load(None)
