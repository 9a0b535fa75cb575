"""Bad files: one clear line for each fault, the rest is read, nothing raises, memory is bounded; and of
flow files the ids are found without reading the records."""

import base64
import functools
import gzip
import itertools
import json
import tempfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addon.recordings.files import entries, files_of, read
from addon.recordings.formats import lines, saved_flows
from addon.recordings.formats.lines import OpenFile
from addon.recordings.formats.recorded import Recorded, Skipped, Unreadable, Why
from ledger.model.errors import LedgerError
from tests.addon.recordings.recorded_files import (
    EXCHANGES,
    FILE_KINDS,
    as_browser_har,
    as_captures,
    as_flows,
    captured,
    flow,
)
from tests.bench import recordings
from tests.named import for_each

GOOD = captured(EXCHANGES[0])


def items(path: Path) -> list[Any]:
    return list(read(path, url=None))


def faults(found: list[Any]) -> list[str]:
    return [item.why for item in found if isinstance(item, Unreadable)]


def line(**changes: Any) -> bytes:
    value = json.loads(GOOD)
    for path, change in changes.items():
        *outer, last = path.split("__")
        inner = value
        for name in outer:
            inner = inner[name]
        inner[last] = change
    return json.dumps(value).encode() + b"\n"


CAPTURE_PAGE = Path(__file__).parents[4] / "docs" / "formats" / "capture.md"


@for_each("as_pairs", [False, True])
def test_the_example_of_the_page_is_read(tmp_path: Path, as_pairs: bool):
    example = json.loads(CAPTURE_PAGE.read_text().partition("```json")[2].partition("```")[0])
    body = base64.b64decode(example["response"]["body_b64"])
    assert sum(size for size, _ in example["response"]["chunks"]) == len(body)
    if as_pairs:
        for part in ("request", "response"):
            example[part]["headers"] = list(example[part]["headers"].items())
    path = tmp_path / "example.jsonl"
    path.write_text(json.dumps(example))
    (item,) = items(path)
    assert isinstance(item, Recorded)
    assert (item.id, item.status, item.response_body) == (example["id"], 200, body)
    assert (
        item.request_headers == item.response_headers == ((b"content-type", b"application/json"),)
    )
    assert item.redacted_request_headers == {"authorization"}


@for_each(
    "bad, why",
    [
        (b'{"x":' + b"[" * 60_000 + b'"request""response"\n', "not a recorded exchange"),
        (line(response__chunks=[[1, 10**400]]), "chunks"),
        (line(response__chunks=[[1, 2**60]]), "chunks"),
        (line(response__chunks=[[1, 2**53]] * 40), "more than a clock can hold"),
        (line(response__chunks=[[1, -1]]), "chunks"),
        (line(id="\ud800"), "not a recorded exchange"),
        (line(id="x" * 201), "200 are the most"),
        (line(response__body_b64="%%%"), "base64"),
        (line(response__status=10**9), "status"),
        (line(request__url="ftp://x/y"), "is not http, https, ws or wss"),
        (line(request__url="https://h:99999/"), "host is unusable"),
        (line(request=3), "request"),
        (b'{"request": "response"\n', "not a recorded exchange"),
        (b'\xff\xfe"request""response"\n', "not a recorded exchange"),
    ],
)
def test_a_bad_line_costs_itself(tmp_path: Path, bad: bytes, why: str):
    path = tmp_path / "x.jsonl"
    path.write_bytes(GOOD + bad + GOOD)
    found = items(path)
    assert len([item for item in found if isinstance(item, Recorded)]) == 2
    (fault,) = [item for item in found if isinstance(item, Unreadable)]
    assert fault.where == f"{path}:2"
    assert why in fault.why
    assert len(fault.why) <= 300
    assert "\n" not in fault.why


@for_each(
    "year",
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+14:00", "no time"],
)
def test_a_start_that_is_no_time_is_not_known(tmp_path: Path, year: str):
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        line(started_at=year, response__headers={"date": "Mon, 02 Nov 2026 12:00:00 GMT"})
    )
    (item,) = items(path)
    assert item.opened_at.isoformat() == "2026-11-02T12:00:00+00:00"


def test_a_line_break_in_a_header_becomes_a_blank(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    headers = {"x-a": "1\r\nset-cookie: s=1", "bad name": "x", ":status": "200"}
    path.write_bytes(line(response__headers=headers))
    (item,) = items(path)
    assert item.response_headers == ((b"x-a", b"1 set-cookie: s=1"),)


def test_what_was_redacted_is_as_if_not_sent(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        line(
            request__url="https://h.example/v1beta/x?key=<redacted>&alt=sse",
            request__headers={"x-api-key": "<redacted>", "accept": "a"},
        )
    )
    (item,) = items(path)
    assert item.path == "/v1beta/x?alt=sse"
    assert item.request_headers == ((b"accept", b"a"),)


def test_a_file_of_another_kind_is_said_once(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"something": "else"}\n' * 3)
    assert items(path) == [Unreadable(str(path), "holds no recorded exchanges", is_other_kind=True)]


def test_a_damaged_member_costs_its_own_lines(tmp_path: Path):
    path = tmp_path / "x.jsonl.gz"
    member = gzip.compress(GOOD)
    broken = member[:30] + b"\xff" * 40 + member[70:]
    path.write_bytes(member + broken + member + b"\0" * 20 + b"junk" + member + member[:50])
    found = items(path)
    assert len([item for item in found if isinstance(item, Recorded)]) == 3
    assert set(faults(found)) == {"cut short: the gzip data is damaged here"}


@for_each("size", [1, 7, 100, 4096])
def test_pieces_of_any_size_give_the_same_lines(tmp_path: Path, monkeypatch, size: int):
    path = as_captures(tmp_path)
    whole = items(path)
    monkeypatch.setattr(lines, "PIECE_BYTES", size)
    assert items(path) == whole


@pytest.mark.large
def test_a_line_beyond_the_bound_is_passed_over_in_little_memory(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 1024 * 1024)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD + b"0" * 60_000_000 + b"\n" + GOOD))
    assert path.stat().st_size < 80_000
    tracemalloc.start()
    found = items(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [type(item) for item in found] == [Recorded, Unreadable, Recorded]
    assert faults(found) == ["longer than 96 MiB: remove the line"]
    assert peak < 16 * 1024 * 1024


def test_a_plain_line_beyond_the_bound_is_passed_over(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 10_000)
    path = tmp_path / "x.jsonl"
    path.write_bytes(GOOD + b"0" * 600_000 + b"\n\n" + GOOD + b"0" * 20_000)
    found = items(path)
    assert [type(item) for item in found] == [Recorded, Unreadable, Recorded, Unreadable]
    assert [item.where.rpartition(":")[2] for item in found] == ["1", "2", "4", "5"]


def test_of_a_long_line_that_is_known_only_the_beginning_is_read(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    parts = json.loads(line(response__body_b64="A" * 20_000_000))
    known = {"name": "a", "id": "a", **{key: parts[key] for key in ("request", "response")}}
    path.write_bytes(json.dumps(known, separators=(",", ":")).encode() + b"\n" + GOOD)
    tracemalloc.start()
    found = list(entries(path, url=None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [found[0].id, found[0].size > 20_000_000, len(found)] == ["a", True, 2]
    assert peak < 2 * 1024 * 1024


def test_a_file_that_is_replaced_meanwhile_is_read_as_it_was(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    body = base64.b64encode(b"data: {}\n\n" * 100_000).decode()
    path.write_bytes(line(response__body_b64=body))
    found = list(entries(path, url=None))
    path.unlink()
    path.write_bytes(b"{}")
    item = found[0].parse()
    assert isinstance(item, Recorded)
    assert len(item.response_body) == 1_000_000


def test_a_bad_flow_costs_itself(tmp_path: Path):
    path = as_flows(tmp_path)
    data = path.read_bytes()
    bad = b"11:3:abc,3:x,,}"
    nested = b"]" * 50
    path.write_bytes(b"3:abc," + bad + data + str(len(nested)).encode() + b":" + nested + b"}")
    found = items(path)
    assert len([item for item in found if isinstance(item, Recorded)]) == len(EXCHANGES)
    assert len(faults(found)) == 3


@for_each(
    "tail, why",
    [
        (b"999999999999:", "cut short"),
        (b"9999999999999:", "damaged from here on"),
        (b"abc", "damaged from here on"),
        (b"12", "cut short"),
    ],
)
def test_a_flow_file_that_is_cut_keeps_what_came_before(tmp_path: Path, tail: bytes, why: str):
    path = as_flows(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    found = items(path)
    assert len(found) == len(EXCHANGES) + 1
    assert why in found[-1].why


def test_what_flow_files_hold_besides(tmp_path: Path):
    from mitmproxy.io import FlowWriter
    from mitmproxy.test import tflow

    path = tmp_path / "other.flow"
    with path.open("wb") as file:
        writer = FlowWriter(file)
        writer.add(tflow.ttcpflow())
        writer.add(tflow.tdnsflow())
        writer.add(tflow.tflow())
        upgraded = flow(EXCHANGES[-1])
        upgraded.websocket = None
        writer.add(upgraded)
    found = items(path)
    assert [item.why for item in found if isinstance(item, Skipped)] == [
        Why.NOT_HTTP, Why.NOT_HTTP, Why.NO_ANSWER, Why.NO_MESSAGES
    ]  # fmt: skip


@for_each(
    "content, why",
    [
        (b"{", "no HAR file"),
        (b'{"log":{"entries":' + b"[" * 100_000, "no HAR file"),
        (b'{"log":{}}', "no HAR file"),
        (b"", "empty"),
    ],
)
def test_a_har_that_is_none(tmp_path: Path, content: bytes, why: str):
    path = tmp_path / "x.har"
    path.write_bytes(content)
    (item,) = items(path) or [Unreadable("", "empty")]
    assert why in item.why


def test_a_bad_entry_costs_itself(tmp_path: Path):
    good = json.loads(FILE_KINDS["chrome-har"](tmp_path).read_text())["log"]["entries"][0]
    bad = [
        good | {"startedDateTime": "0001-01-01T00:00:00Z"},
        good | {"request": 3},
        good | {"response": good["response"] | {"content": {"text": "%", "encoding": "base64"}}},
        good | {"_webSocketMessages": [{"type": "send", "time": 1e300, "data": ""}]},
        good | {"response": {"status": 0}},
        good | {"response": good["response"] | {"content": {}}},
        good | {"response": good["response"] | {"status": 101}},
        good | {"response": {"status": 0, "_error": "net::ERR_FAILED"}, "time": 1e300},
    ]
    path = tmp_path / "bad.har"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"log": {"entries": [*bad, good]}}).encode())
    found = items(path)
    assert len(faults(found)) == 4
    assert [item.why for item in found if isinstance(item, Skipped)] == [
        Why.NO_ANSWER, Why.NO_BODY, Why.NO_MESSAGES
    ]  # fmt: skip
    failed, whole = (item for item in found if isinstance(item, Recorded))
    assert (failed.status, failed.cause, failed.ended_at) == (None, "net::ERR_FAILED", None)
    assert whole.status == 200


def test_the_headers_of_a_har_are_those_that_it_states(tmp_path: Path):
    """mitmproxy's reader adds a length to the headers of its flow."""
    item, *_ = items(FILE_KINDS["chrome-har"](tmp_path))
    assert isinstance(item, Recorded)
    names = [name for name, _ in (*item.request_headers, *item.response_headers)]
    assert names == [b"content-type", b"authorization", b"user-agent", b"content-type"]


def with_files(path: Path, **names: str) -> Path:
    """A HAR of one entry whose bodies are beside it, as Playwright's `attach` keeps them."""
    entry = json.loads(FILE_KINDS["chrome-har"](path.parent).read_text())["log"]["entries"][0]
    for part, inside in (("request", "postData"), ("response", "content")):
        if part in names:
            body = entry[part][inside]
            body["_file"] = names[part]
            body.pop("text"), body.pop("encoding", None)
    path.write_text(json.dumps({"log": {"entries": [entry]}}))
    return path


@for_each("parts", [["response"], ["request"], ["request", "response"]])
def test_bodies_that_are_beside_a_har_are_read(tmp_path: Path, parts: list[str]):
    item, *_ = items(FILE_KINDS["chrome-har"](tmp_path))
    for part in parts:
        body = item.request_body if part == "request" else item.response_body
        (tmp_path / f"{part}.dat").write_bytes(body)
    (found,) = items(with_files(tmp_path / "a.har", **{part: f"{part}.dat" for part in parts}))
    assert isinstance(found, Recorded)
    assert (found.id, found.response_body) == (item.id, item.response_body)
    assert found.request_body == item.request_body


@for_each("name", ["../secret", "/etc/hostname", "gone.dat", "link", "folder", "a\0b", "x" * 500])
@for_each("part", ["request", "response"])
def test_no_body_outside_of_the_folder_of_a_har_is_read(tmp_path: Path, name: str, part: str):
    folder = tmp_path / "in"
    (folder / "folder").mkdir(parents=True, exist_ok=True)
    (tmp_path / "secret").write_text("{}")
    if not (folder / "link").exists():
        (folder / "link").symlink_to(tmp_path / "secret")
    (why,) = faults(items(with_files(folder / "a.har", **{part: name})))
    assert "is not beside the file" in why or "\0" in name or "too long" in why


def test_a_compressed_har(tmp_path: Path):
    plain = FILE_KINDS["chrome-har"](tmp_path)
    packed = tmp_path / "x.zhar"
    packed.write_bytes(zlib.compress(plain.read_bytes()))
    assert [item.id for item in items(packed)] == [item.id for item in items(plain)]
    packed.write_bytes(zlib.compress(plain.read_bytes())[:-20])
    assert len(faults(items(packed))) == 1


def test_bounds_on_whole_files(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(saved_flows, "HAR_BYTES_MAX", 10)
    assert "larger than" in faults(items(FILE_KINDS["chrome-har"](tmp_path)))[0]
    monkeypatch.setattr(saved_flows, "RECORD_BYTES_MAX", 10)
    assert "are the most" in faults(items(as_flows(tmp_path)))[0]


def test_files_are_found_once_and_in_order(tmp_path: Path):
    for name in ("b.jsonl", "a.mitm", "c.sse", "d.txt"):
        (tmp_path / name).write_text("")
    assert [path.name for path in files_of([tmp_path, tmp_path / "b.jsonl"], bodies_too=False)] == [
        "a.mitm", "b.jsonl",
    ]  # fmt: skip
    assert len(files_of([tmp_path], bodies_too=True)) == 3
    with pytest.raises(LedgerError, match="no such file"):
        files_of([tmp_path / "nowhere"], bodies_too=False)


@for_each("kind", FILE_KINDS)
@for_each("parts", [2, 3])
def test_parts_together_are_the_whole(tmp_path: Path, kind: str, parts: int):
    path = FILE_KINDS[kind](tmp_path)
    whole = [entry.parse().where for entry in entries(path, url=None)]
    shares = [
        [entry.parse().where for entry in entries(path, url=None, part=part, parts=parts)]
        for part in range(parts)
    ]
    assert sorted(itertools.chain(*shares)) == sorted(whole)


@functools.cache
def sources() -> dict[str, tuple[str, bytes]]:
    """Suffix and content of a file of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        made = {kind: make(Path(folder)) for kind, make in FILE_KINDS.items()}
        return {
            kind: (
                "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix,
                path.read_bytes(),
            )
            for kind, path in made.items()
        }


def mutated(draw: Any, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(found) - 1)))
        piece = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from([b"9" * 12, b"[" * 200, b'"', b"\0", b"\xff"]),
            )
        )
        found[at : at + draw(st.integers(0, 8))] = piece
    return bytes(found)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    suffix, content = sources()[data.draw(st.sampled_from(sorted(FILE_KINDS)))]
    path = tmp_path_factory.mktemp("fuzz") / f"fuzzed{suffix}"
    path.write_bytes(mutated(data.draw, content))
    for item in read(path, url=None):
        assert isinstance(item, Recorded | Skipped | Unreadable)


def test_base64_that_is_no_ascii_costs_its_entry(tmp_path: Path):
    path = as_browser_har(tmp_path, is_base64=True)
    whole = len(items(path))
    archive = json.loads(path.read_text())
    archive["log"]["entries"][0]["response"]["content"]["text"] = "é"
    path.write_text(json.dumps(archive))
    found = items(path)
    assert len(faults(found)) == 1
    assert len(found) == whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three flows, two of which are far longer than the buffer."""
    found = tmp_path / "flows.mitm"
    long, other = recordings.longs(2, 4 * saved_flows.BUFFER_BYTES)
    (short,) = recordings.shorts(1)
    recordings.write(found, iter([long, short, other]))
    return found


def test_of_a_record_that_is_not_parsed_nothing_but_the_end_is_read(path: Path, monkeypatch):
    def read(_file: OpenFile, _start: int, _size: int) -> bytes:
        raise AssertionError

    monkeypatch.setattr(OpenFile, "read", read)
    found = list(saved_flows.flow_entries(path))
    assert [entry.id for entry in found] == [
        f"00000000-0000-4000-8000-{number:012}" for number in (0, 0, 1)
    ]
    assert found[-1].read_bytes == path.stat().st_size


def test_each_record_is_read_where_it_stands(path: Path):
    for parts in (1, 2):
        entries = [
            entry
            for part in range(parts)
            for entry in saved_flows.flow_entries(path, part=part, parts=parts)
        ]
        found = [entry.parse() for entry in sorted(entries, key=lambda entry: entry.read_bytes)]
        assert all(isinstance(item, Recorded) and item.id == item.name for item in found)
        sizes = [len(item.response_body) for item in found if isinstance(item, Recorded)]
        assert [size > saved_flows.BUFFER_BYTES for size in sizes] == [True, False, True]


def test_a_file_that_became_shorter_costs_the_records_behind_its_end(path: Path):
    first, second, third = saved_flows.flow_entries(path)
    with path.open("r+b") as file:
        file.truncate(second.read_bytes - 1)
    assert isinstance(first.parse(), Recorded)
    for entry in (second, third):
        item = entry.parse()
        assert isinstance(item, Unreadable)
        assert item.why == "not a flow: cut short"


TAIL = b"2:id;3:abc;4:type;4:http;7:version;2:21#}"


@for_each(
    "tail",
    [
        pytest.param(TAIL.replace(b"3:abc", b"4:abc"), id="another-length"),
        pytest.param(TAIL.replace(b"http", b"dns;"), id="another-kind"),
        pytest.param(TAIL[:-1] + b"]", id="no-dictionary"),
        pytest.param(TAIL.replace(b"abc", b'a"c'), id="odd-characters"),
        pytest.param(b"4:type;4:http;7:version;2:21#}", id="no-id"),
    ],
)
def test_a_record_that_ends_in_another_way_is_read_for_its_id(tail: bytes):
    assert saved_flows._id_at_end_of(b"5:error;0:~" + TAIL) == "abc"
    assert saved_flows._id_at_end_of(b"5:error;0:~" + tail) is None


def test_flows_of_an_older_version_are_read_by_mitmproxys_migration(tmp_path: Path):
    path = as_flows(tmp_path)
    newest, found = items(path), list(saved_flows.flow_entries(path))
    older = path.read_bytes().replace(b"7:version;2:21#", b"7:version;2:20#")
    path.write_bytes(older)
    assert [entry.id for entry in saved_flows.flow_entries(path)] == [entry.id for entry in found]
    assert items(path) == newest
