"""One damaged entry among good ones is set aside and counted with its place; the others are read.

Every value of an entry, at every depth, is replaced by each kind of bad value, in every kind of
file, and the entry stands first, in the middle, or last.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mitmproxy.io import tnetstring

from addon.metering.opening import RunRules
from addon.recordings.files import read
from addon.recordings.formats.recorded import Recorded, Skipped, Unreadable
from addon.recordings.metered import meter
from tests.addon.recordings.recorded_files import (
    EXCHANGES,
    as_browser_har,
    as_captures,
    as_flows,
    as_lines,
    as_mitmproxy_har,
)

REMOVED = object()
DEEP = "<deep>"
"""Stands for a list of 20 000 levels, which no encoder writes."""
BAD = [
    REMOVED, None, True, -1, 0, 10**30, 10**400, 1e300, float("nan"), "", "\udc80", "%%%", "é" * 9,
    "x" * 100_000, [], {}, [[]], {"a": {}}, DEEP, "\x00", "9999-99-99T99:99:99Z", b"\xff\x00",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in an entry."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*path, key)
        if isinstance(one, dict | list | tuple):
            yield from places(one, (*path, key))


def replaced(entry: Any, path: tuple[Any, ...], bad: Any) -> Any:
    made = json_like(entry)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if bad is REMOVED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = bad
    return made


def json_like(value: Any) -> Any:
    """A copy with lists for tuples, so that every value can be replaced."""
    if isinstance(value, dict):
        return {key: json_like(one) for key, one in value.items()}
    return [json_like(one) for one in value] if isinstance(value, list | tuple) else value


def json_of(value: Any) -> bytes:
    text = json.dumps(value, default=lambda data: data.decode("latin-1"))
    return text.replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000).encode()


def record_of(value: Any) -> bytes:
    """A tnetstring. mitmproxy's own writer knows no lone surrogates and no such depth."""
    text = tnetstring.dumps(without_surrogates(value))
    assert isinstance(text, bytes)
    return text


def without_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        # The writer reverses the members, and so did the reader.
        return {key: without_surrogates(one) for key, one in reversed(value.items())}
    if isinstance(value, list | tuple):
        return [without_surrogates(one) for one in value]
    if value == DEEP:
        deep: list[Any] = []
        for _ in range(200):
            deep = [deep]
        return deep
    return value.encode("utf-8", "surrogatepass") if value == "\udc80" else value


def lines_in(path: Path) -> list[Any]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in data.splitlines()]


def har_in(path: Path) -> list[Any]:
    found: list[Any] = json.loads(path.read_text())["log"]["entries"]
    return found


def flows_in(path: Path) -> list[Any]:
    found = []
    with path.open("rb") as file:
        while file.peek(1):
            found.append(tnetstring.load(file))
    return found


def as_har(entries: list[Any]) -> bytes:
    return b'{"log":{"version":"1.2","entries":[' + b",".join(map(json_of, entries)) + b"]}}"


type Format = tuple[
    str, Callable[[Path], Path], Callable[[Path], list[Any]], Callable[[list[Any]], bytes]
]
FORMATS: dict[str, Format] = {
    "captures": (
        ".jsonl.gz", as_captures, lines_in,
        lambda entries: b"".join(gzip.compress(json_of(one) + b"\n") for one in entries),
    ),
    "lines": (".jsonl", as_lines, lines_in, lambda found: b"\n".join(map(json_of, found)) + b"\n"),
    "mitmproxy-har": (".har", as_mitmproxy_har, har_in, as_har),
    "chrome-har": (
        ".har", lambda folder: as_browser_har(folder, is_base64=True), har_in, as_har
    ),
    "firefox-zhar": (
        ".zhar", lambda folder: as_browser_har(folder, is_base64=False), har_in,
        lambda found: zlib.compress(as_har(found)),
    ),
    "flows": (".mitm", as_flows, flows_in, lambda found: b"".join(map(record_of, found))),
}  # fmt: skip


@pytest.fixture(scope="module")
def entries_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return {
        name: read_back(make(tmp_path_factory.mktemp(name)))
        for name, (_, make, read_back, _) in FORMATS.items()
    }


def ids(path: Path) -> list[str]:
    return [item.id for item in read(path, url=None) if isinstance(item, Recorded)]


@pytest.fixture(scope="module")
def wholes(
    entries_of: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """The ids that are read from the good entries."""
    found = {}
    for name, (suffix, _, _, write) in FORMATS.items():
        path = tmp_path_factory.mktemp(name) / f"good{suffix}"
        path.write_bytes(write(entries_of[name]))
        found[name] = ids(path)
        assert len(found[name]) == len(entries_of[name])
    return found


@pytest.mark.parametrize("name", FORMATS)
@settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(at=st.integers(0, 1_000), place=st.integers(0, 10_000), bad=st.sampled_from(BAD))
def test_one_bad_entry(
    name: str,
    entries_of: dict[str, list[Any]],
    wholes: dict[str, list[str]],
    tmp_path: Path,
    at: int,
    place: int,
    bad: Any,
):
    suffix, _, _, write = FORMATS[name]
    good, whole = entries_of[name], wholes[name]
    path = tmp_path / f"mutated{suffix}"
    at %= len(good)
    of_entry = sorted(places(good[at]), key=repr)
    damaged = replaced(good[at], of_entry[place % len(of_entry)], bad)
    path.write_bytes(write([*good[:at], damaged, *good[at + 1 :]]))
    found = list(read(path, url=None))
    assert len(found) == len(good)
    read_well = [item.id for item in found if isinstance(item, Recorded)]
    for one in [*whole[:at], *whole[at + 1 :]]:
        assert one in read_well
    for item in found:
        assert isinstance(item, Recorded | Skipped | Unreadable)
        assert str(path) in item.where
        if isinstance(item, Recorded):
            meter(item, RunRules(node=""))


@pytest.mark.parametrize("bad", [True, 10**9, 10**30, "text", [1]])
@pytest.mark.parametrize("part", ["request", "response", "message"])
def test_a_flow_whose_body_is_no_bytes(
    entries_of: dict[str, list[Any]], tmp_path: Path, part: str, bad: Any
):
    """A number would be read as that many zeros."""
    good = entries_of["flows"]
    at = next(n for n, one in enumerate(good) if part != "message" or one["websocket"])
    place = ("websocket", "messages", 0, 2) if part == "message" else (part, "content")
    path = tmp_path / "mutated.mitm"
    damaged = replaced(good[at], place, bad)
    path.write_bytes(FORMATS["flows"][3]([*good[:at], damaged, *good[at + 1 :]]))
    found = list(read(path, url=None))
    assert [isinstance(item, Unreadable) for item in found] == [n == at for n in range(len(good))]


@pytest.mark.parametrize("name", FORMATS)
def test_an_entry_that_is_no_object(name: str, entries_of: dict[str, list[Any]], tmp_path: Path):
    suffix, _, _, write = FORMATS[name]
    good = entries_of[name]
    for at in (0, 2, len(good)):
        bad: Any
        for bad in ("text", 3, [], {}):
            path = tmp_path / f"mutated{suffix}"
            path.write_bytes(write([*good[:at], bad, *good[at:]]))
            found = list(read(path, url=None))
            assert [isinstance(item, Recorded) for item in found].count(False) == 1
            assert not isinstance(found[at], Recorded)


def test_a_wrong_length_in_a_flow_file(entries_of: dict[str, list[Any]], tmp_path: Path):
    """The end of that record is unknown; reading goes on where the next one begins."""
    records = [record_of(one) for one in entries_of["flows"]]
    for at, record in enumerate(records):
        _, _, content = record.partition(b":")
        for length in (
            b"1",
            b"%d" % (len(content) - 2),
            b"%d" % len(content),
            b"999999",
            b"x",
            b"",
        ):
            path = tmp_path / "mutated.mitm"
            bad = length + b":" + content
            path.write_bytes(b"".join([*records[:at], bad, *records[at + 1 :]]))
            found = list(read(path, url=None))
            assert [isinstance(item, Recorded) for item in found].count(True) == len(records) - 1


def test_what_is_kept_of_a_har_that_was_cut(entries_of: dict[str, list[Any]], tmp_path: Path):
    path = tmp_path / "cut.har"
    good = entries_of["chrome-har"]
    text = as_har(good)
    path.write_bytes(text[: -len(json_of(good[-1])) // 2])
    *found, last = read(path, url=None)
    assert [isinstance(item, Recorded) for item in found] == [True] * (len(good) - 1)
    assert isinstance(last, Unreadable)
    assert "cut short or damaged after entry" in last.why


def test_a_lone_surrogate_in_a_header_costs_nothing(
    entries_of: dict[str, list[Any]], tmp_path: Path
):
    """mitmproxy exports a header's bytes that are no UTF-8 as lone surrogates."""
    path = tmp_path / "surrogate.har"
    entries = json_like(entries_of["mitmproxy-har"])
    for header in entries[0]["request"]["headers"]:
        if header["name"] == "user-agent":
            header["value"] = "client/\udc80"
    path.write_bytes(as_har(entries))
    assert len(ids(path)) == len(entries)
    assert len(EXCHANGES) == len(entries)
