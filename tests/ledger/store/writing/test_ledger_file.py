"""Whether a file is still the ledger's: beside other writers it is, whatever they have written yet."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from ledger.store.writing.ledger_file import LedgerFile
from ledger.store.writing.unwritten import OverwrittenError
from tests.ledger.written import opened, writing


@pytest.fixture
def place(migrated_file, tmp_path):
    path = tmp_path / "ledger.sqlite3"
    shutil.copy(migrated_file, path)
    return path


@pytest.fixture
def held(place):
    """The ledger's file, as a writer has it open."""
    file = LedgerFile(place, shown_url="it", spooling=False, log=lambda *_: None)
    file.open()
    assert file.is_in_place()
    yield file
    file.connection.close()


def test_a_checkpoint_that_has_written_its_first_page_makes_no_other_file(place, held, tmp_path):
    """Its first page has the length that the file is to have."""
    with writing(f"sqlite:///{place}") as written:
        for number in range(400):
            written.ledger.open(opened(f"e{number}"))
    copy = tmp_path / "copy.sqlite3"
    for end in ("", "-wal"):
        shutil.copy(f"{place}{end}", f"{copy}{end}")
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert copy.stat().st_size > place.stat().st_size
    with place.open("r+b") as file:
        file.write(copy.read_bytes()[:4096])
    assert held.is_in_place()


def test_a_file_that_was_written_over_is_another(place, held, migrated_file):
    place.write_bytes(migrated_file.read_bytes()[:-4096])
    with pytest.raises(OverwrittenError):
        held.is_in_place()
