"""Every small file is read with one bound and refused in the same words."""

import pytest

from addon.run import bill
from addon.run.call import config_file
from ledger.budgets import budgets_file as budget_files
from ledger.model.errors import LedgerError
from ledger.pricing import litellm, overrides
from ledger.reconcile import statement_files
from ledger.settings import names_file, rates_file, small_files
from ledger.store import secret

READERS = {
    "names file": names_file.check,
    "price file": lambda path: overrides.check(str(path)),
    "LiteLLM price file": litellm.LiteLLM.load,
    "budgets file": lambda path: budget_files.load(str(path)),
    "config file": config_file.check,
    "rates file": lambda path: rates_file.load("EUR", str(path)),
    "file of expected costs": bill.read,
    "statement": lambda path: statement_files.load(str(path), provider=None),
    "secret of key fingerprints": secret._read,
}
LIMITS = {
    "LiteLLM price file": litellm.FILE_BYTES_MAX,
    "statement": statement_files.FILE_BYTES_MAX,
    "secret of key fingerprints": secret.FILE_BYTES_MAX,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, kind):
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", "embedded null byte"),
    ):
        with pytest.raises(LedgerError) as raised:
            READERS[kind](path)
        assert str(raised.value) == f"cannot read the {kind} {path}: {reason}"


@pytest.mark.parametrize("kind", READERS)
def test_a_file_beyond_the_bound_is_refused_and_no_more_of_it_is_read(tmp_path, kind, monkeypatch):
    asked = []
    first_bytes = small_files.first_bytes

    def watched(path, bytes_max):
        asked.append(bytes_max)
        return first_bytes(path, bytes_max)

    monkeypatch.setattr(small_files, "first_bytes", watched)
    limit = LIMITS.get(kind, small_files.FILE_BYTES_MAX)
    path = tmp_path / "dump"
    with path.open("wb") as file:
        file.truncate(limit + 1)
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit} bytes"
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: it is larger than {size}; ")
    assert asked == [limit + 1]


@pytest.mark.parametrize("kind", [each for each in READERS if each != "LiteLLM price file"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_place(tmp_path, kind):
    path = tmp_path / "image"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: not UTF-8 text at byte 0; ")


def test_a_file_as_large_as_the_bound_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert small_files.read_text(path, "file", bytes_max=5) == "12345"
    with pytest.raises(LedgerError, match="larger than 4 bytes; shorten it"):
        small_files.read_bytes(path, "file", bytes_max=4, advice="shorten it")
    assert small_files.first_bytes(path, 2) == b"12"
