"""Archives: which files there are, and copies of those that lie elsewhere."""

import pytest

from addon.recordings import archives
from addon.recordings.archives import ArchiveFile
from ledger.model.errors import LedgerError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory():
    """An object store in this process."""
    system = fsspec.filesystem("memory")
    system.pipe("/archive/a.jsonl", b"1")
    system.pipe("/archive/b.har", b"22")
    system.pipe("/archive/notes.md", b"333")
    yield system
    system.rm("/archive", recursive=True)


@pytest.mark.usefixtures("memory")
def test_the_recordings_of_a_folder_and_of_a_glob():
    def found(*names):
        return [(file.name, file.size) for file in archives.files_in(names, bodies_too=False)]

    in_folder = [("memory:///archive/a.jsonl", 1), ("memory:///archive/b.har", 2)]
    assert found("memory://archive") == in_folder
    assert found("memory://archive/*.har") == in_folder[1:]
    assert found("memory://archive", "memory://archive/a.jsonl") == in_folder


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("url", ["memory://nowhere", "memory://archive/*.gz", "nosuch://x"])
def test_what_is_not_there_is_one_line(url):
    with pytest.raises(LedgerError, match=url.partition(":")[0]):
        archives.files_in([url], bodies_too=False)


@pytest.mark.usefixtures("memory")
def test_a_copy_has_the_time_of_its_original_and_goes_afterwards(tmp_path):
    """The time stands for the start of exchanges that were recorded without one."""
    (file,) = archives.files_in(["memory://archive/a.jsonl"], bodies_too=False)
    assert not file.is_local
    file = ArchiveFile(name=file.name, size=file.size, modified_at=1_700_000_000.0)
    with archives.on_this_machine(file, tmp_path) as copy:
        assert copy.read_bytes() == b"1"
        assert copy.stat().st_mtime == 1_700_000_000.0
    assert not copy.exists()


def test_a_local_file_is_read_where_it_lies(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1")
    (file,) = archives.files_in([str(path)], bodies_too=False)
    assert file.is_local
    with archives.on_this_machine(file, tmp_path / "unused") as found:
        assert found == path
    assert path.exists()
