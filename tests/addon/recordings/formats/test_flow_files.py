"""Flow files: the ids of records are found without reading the records."""

from pathlib import Path

import pytest

from addon.recordings.formats import flow_files
from addon.recordings.formats.lines import OpenFile
from addon.recordings.formats.recorded import Recorded, Unreadable
from tests.addon.recordings.recorded_files import as_flows
from tests.bench import recordings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three flows, two of which are far longer than the buffer."""
    found = tmp_path / "flows.mitm"
    long, other = recordings.longs(2, 4 * flow_files.BUFFER_BYTES)
    (short,) = recordings.shorts(1)
    recordings.write(found, iter([long, short, other]))
    return found


def test_of_a_record_that_is_not_parsed_nothing_but_the_end_is_read(path: Path, monkeypatch):
    def read(_file: OpenFile, _start: int, _size: int) -> bytes:
        raise AssertionError

    monkeypatch.setattr(OpenFile, "read", read)
    found = list(flow_files.entries(path))
    assert [entry.id for entry in found] == [
        f"00000000-0000-4000-8000-{number:012}" for number in (0, 0, 1)
    ]
    assert found[-1].read_bytes == path.stat().st_size


def test_each_record_is_read_where_it_stands(path: Path):
    for parts in (1, 2):
        entries = [
            entry
            for part in range(parts)
            for entry in flow_files.entries(path, part=part, parts=parts)
        ]
        found = [entry.parse() for entry in sorted(entries, key=lambda entry: entry.read_bytes)]
        assert all(isinstance(item, Recorded) and item.id == item.name for item in found)
        sizes = [len(item.response_body) for item in found if isinstance(item, Recorded)]
        assert [size > flow_files.BUFFER_BYTES for size in sizes] == [True, False, True]


def test_a_file_that_became_shorter_costs_the_records_behind_its_end(path: Path):
    first, second, third = flow_files.entries(path)
    with path.open("r+b") as file:
        file.truncate(second.read_bytes - 1)
    assert isinstance(first.parse(), Recorded)
    for entry in (second, third):
        item = entry.parse()
        assert isinstance(item, Unreadable)
        assert item.why == "not a flow: cut short"


TAIL = b"2:id;3:abc;4:type;4:http;7:version;2:21#}"


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(TAIL.replace(b"3:abc", b"4:abc"), id="another-length"),
        pytest.param(TAIL.replace(b"http", b"dns;"), id="another-kind"),
        pytest.param(TAIL.replace(b"21#", b"20#"), id="another-version"),
        pytest.param(TAIL[:-1] + b"]", id="no-dictionary"),
        pytest.param(TAIL.replace(b"abc", b'a"c'), id="odd-characters"),
        pytest.param(b"4:type;4:http;7:version;2:21#}", id="no-id"),
    ],
)
def test_a_record_that_ends_in_another_way_is_read_for_its_id(tail: bytes):
    assert flow_files._id_at_end_of(b"5:error;0:~" + TAIL) == "abc"
    assert flow_files._id_at_end_of(b"5:error;0:~" + tail) is None


def test_an_id_in_another_place_of_the_record_is_found(tmp_path: Path):
    path = as_flows(tmp_path)
    found = list(flow_files.entries(path))
    moved = path.read_bytes().replace(b"7:version;2:21#", b"7:version;2:20#")
    path.write_bytes(moved)
    assert [entry.id for entry in flow_files.entries(path)] == [entry.id for entry in found]
