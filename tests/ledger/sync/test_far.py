"""A merge over ssh, with a program `ssh` that runs the command here: both directions, repeated, cut
anywhere, with a far side that lies."""

import json
import os
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import orjson
import pytest

from ledger.model.errors import LedgerError
from ledger.store import secret
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.tables import exchanges
from ledger.sync import bundles, far, merging, serving
from tests.ledger.sync.test_merging import contents
from tests.ledger.written import on, opened, put, rows, settled, totals, whole
from tests.named import for_each

SSH = """#!{python}
import json, os, subprocess, sys
Path = {folder!r}
open(Path + "/arguments", "w").write(json.dumps(sys.argv[1:]))
limit = os.environ.get("CUT")
far = subprocess.Popen(
    ["sh", "-c", sys.argv[-1]], stdout=subprocess.PIPE if limit else None, env=os.environ
)
if limit:
    left = int(limit)
    while left > 0 and (data := os.read(far.stdout.fileno(), left)):
        os.write(1, data)
        left -= len(data)
    far.kill()
    sys.stderr.write("Timeout,\\nserver not responding.\\n")
sys.exit(far.wait())
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the PATH, with an `ssh` in it, and `tokentee` behind it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(SSH.format(python=sys.executable, folder=str(folder)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    monkeypatch.setenv("PATH", path)
    return folder


def filled(url: str, names: str, **more: Any) -> str:
    put(url, *(whole(settled(name, **more)) for name in names))
    return url


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def far_of(url: str) -> str:
    return f"ssh://me@laptop:2222{file_of(url)}"


def test_both_directions_over_ssh(ssh, new_sqlite):
    here, there = filled(new_sqlite("here"), "ab"), filled(new_sqlite("there"), "bcd")
    put(there, (opened("e"), None, ()))
    assert merging.sync(far_of(there), here).exchanges == 4
    assert json.loads((ssh / "arguments").read_text()) == [
        *("-T", "-p", "2222", "-l", "me", "--", "laptop"),
        'PATH="$PATH:$HOME/.local/bin" tokentee sync --stdio',
    ]
    assert merging.sync(here, far_of(there)).refused == ()
    assert contents(here) == contents(there)
    before = contents(here)
    for source, target in ((far_of(there), here), (here, far_of(there))):
        merging.sync(source, target)
    assert contents(here) == contents(there) == before


@pytest.mark.parametrize("direction", ["from", "to"])
def test_the_secret_goes_to_an_empty_ledger_alone(direction, new_sqlite, monkeypatch):
    source, target = filled(new_sqlite("source"), "a"), new_sqlite("target")
    ours = b"s" * 32
    with on(source) as engine:
        assert secret.store(engine, ours)
    is_from = direction == "from"
    for refusal in (None, "--with-secret is for an empty target"):
        with served() as pipe:
            role: far.Role = "source" if is_from else "target"
            ledger = far.FarLedger(pipe, role, file_of(source if is_from else target))
            monkeypatch.setattr(far, "connect", lambda *_, given=ledger: Given(given))
            pair = ("ssh://x", target) if is_from else (source, "ssh://x")
            if refusal is None:
                assert not merging.sync(*pair, with_secret=True).has_two_secrets
                with on(target) as engine:
                    assert secret.known(engine) == ours
                with on(source) as engine:  # another one from now on
                    secret._own_path(Path(file_of(source))).unlink()
                    assert secret.store(engine, b"t" * 32)
            else:
                with pytest.raises(LedgerError, match=refusal):
                    merging.sync(*pair, with_secret=True)


def test_what_is_no_secret_ends_the_merge():
    for answer in ({}, {"secret": 7}, {"secret": "zz"}):
        with said(answer) as pipe, pytest.raises(LedgerError, match="else than a secret"):
            far.FarLedger(pipe, "source", None).secret()


def test_the_far_side_has_a_ledger_of_its_own(ssh, new_sqlite, monkeypatch):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "ab")
    monkeypatch.setenv("TOKENTEE_LEDGER", there)
    merging.sync("ssh://laptop", here)
    assert contents(here) == contents(there)


def test_a_connection_that_is_cut_is_repeated_without_loss(ssh, new_sqlite, monkeypatch):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "abc")
    monkeypatch.setattr(merging, "BUNDLE_EXCHANGES_MAX", 1)
    begun = "interrupted after 0 exchanges"
    for cut, where in (
        (0, "does not answer"),
        (5, "does not answer"),
        (300, begun),
        (2_000, begun),
    ):
        monkeypatch.setenv("CUT", str(cut))
        ended = r"the connection ended \(Timeout, server not responding.\)"
        with pytest.raises(LedgerError, match=f"{where}.*{ended}") as raised:
            merging.sync(far_of(there), here)
        assert "laptop" in str(raised.value)
    monkeypatch.delenv("CUT")
    merging.sync(far_of(there), here)
    assert contents(here) == contents(there)


@pytest.mark.parametrize(
    "url",
    [
        *("ssh://-oProxyCommand=x", "ssh://-oProxyCommand=x/l.db", "ssh://me@-x", "ssh://-l@host"),
        *("ssh://host:0", "ssh://host:65536", "ssh://host:22x", "ssh://", "ssh://ho st"),
        *("ssh://host;touch x", "ssh://$(x)/l.db", "ssh://me:word@host", "ssh://a`x`@host/"),
    ],
)
def test_no_part_of_a_url_is_an_option_or_a_word_of_a_shell(url, ssh, new_sqlite):
    with pytest.raises(LedgerError, match="not a ledger over ssh") as error:
        merging.sync(url, new_sqlite())
    assert "word" not in str(error.value)
    assert not (ssh / "arguments").exists()


def test_a_path_crosses_as_a_message(ssh, new_sqlite, tmp_path):
    folder = tmp_path / "a $(touch x) 'b' ?c"
    folder.mkdir()
    here = filled(new_sqlite("here"), "a")
    merging.sync(here, f"ssh://laptop{folder}/-l.sqlite3")
    assert json.loads((ssh / "arguments").read_text())[-1] == far.REMOTE_COMMAND
    assert (folder / "-l.sqlite3").is_file()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("#!/bin/sh\necho 'sh: 1: tokentee: not found' >&2; exit 127\n", "tokentee: not found"),
        ("#!/bin/sh\nprintf 'Permission denied \\033]0;x\\007' >&2; exit 255\n", r"denied \\x1b"),
        ("#!/bin/sh\nexec cat /dev/zero\n", "no greeting of tokentee"),
        ("#!/bin/sh\necho 'hello'; exec sleep 1000\n", "silent for"),
    ],
)
def test_what_does_not_answer_is_named(program, words, ssh, new_sqlite, monkeypatch):
    monkeypatch.setattr(far, "SILENCE_SECONDS_MAX", 0.5)
    (ssh / "ssh").write_text(program)
    with pytest.raises(
        LedgerError, match=f"laptop does not answer as tokentee over ssh: .*{words}"
    ):
        merging.sync("ssh://laptop", new_sqlite())


def test_an_error_of_the_far_side_is_one_line(ssh, new_sqlite, tmp_path):
    with pytest.raises(LedgerError, match="the far side says: there is no ledger"):
        merging.sync(f"ssh://laptop{tmp_path}/none.sqlite3", new_sqlite())
    with pytest.raises(LedgerError, match="one of SOURCE and TARGET"):
        merging.sync("ssh://a", "ssh://b")


# In one process: a far side with other habits.


class Wire:
    """Two pipes, and a thread at their far end."""

    def __init__(self, answer: Any) -> None:
        self.ours, theirs_out = os.pipe()
        theirs_in, self.to_them = os.pipe()

        def run() -> None:
            with os.fdopen(theirs_in, "rb"), os.fdopen(theirs_out, "wb") as writer:
                answer(theirs_in, writer)

        self.thread = threading.Thread(target=run)
        self.thread.start()
        self.pipe = far.Pipe(self.ours, self.to_them, silence_seconds_max=5)

    def __enter__(self) -> far.Pipe:
        self.pipe.skip_to(far.GREETING)
        return self.pipe

    def __exit__(self, *_: object) -> None:
        os.close(self.ours)
        os.close(self.to_them)
        self.thread.join(10)
        assert not self.thread.is_alive()


@for_each("before", [b"", b"welcome\n", b"no end of line ", b"tokentee sync 1 \n"])
def test_what_a_shell_prints_first_is_skipped(before):
    with Wire(lambda _, writer: writer.write(before + far.GREETING + b"2\n{}")) as pipe:
        assert pipe.receive() == {}


def said(*answers: bytes | dict[str, Any]) -> Wire:
    """A far side that says this, whatever it is asked."""

    def answer(reader: int, writer: IO[bytes]) -> None:
        pipe = far.Pipe(reader, writer.fileno(), silence_seconds_max=5)
        try:
            pipe.write(b"welcome\n" + far.GREETING)
            for one in ({}, *answers):
                pipe.receive()
                pipe.write(one) if isinstance(one, bytes) else pipe.send(one)
        except ConnectionError:
            pass

    return Wire(answer)


KEY = ["2026-11-02 12:00:00.000000Z", "a"]
KNOWN = [*KEY, "settled", None, None, None]


@for_each(
    "answer",
    [
        *(b"", b"12", b"99999999999999999999\n", b"-1\n", b"2\nno", b"2\n[]", b'5\n{"a"', b"\n\n"),
        b"9" * 100,
    ],
)
def test_what_is_no_message_ends_the_merge(answer):
    with said(answer) as pipe, pytest.raises(ConnectionError):
        far.FarLedger(pipe, "source", None).count()


@for_each(
    "known",
    [
        *(None, 7, {}, [7], [[1, 2, 3]], [KNOWN[:5]], [[*KEY, "free", None, None, None]]),
        *([["now", *KNOWN[1:]]], [[KEY[0], 7, *KNOWN[2:]]], [[KEY[0], "x" * 2_000, *KNOWN[2:]]]),
        [[*KEY[:1], str(at), *KNOWN[2:]] for at in range(far.KNOWN_MAX + 1)],
    ],
)
def test_what_is_no_list_of_exchanges_ends_the_merge(known):
    with said({"known": known}) as pipe, pytest.raises(LedgerError, match="something else than"):
        far.FarLedger(pipe, "source", None).known_after(None)


def test_a_list_that_does_not_go_on_ends_the_merge():
    with said({"known": [KNOWN]}) as pipe, pytest.raises(LedgerError, match="out of order"):
        far.FarLedger(pipe, "source", None).known_after((KEY[0], "b"))


def test_a_list_without_end_ends_the_merge(monkeypatch):
    monkeypatch.setattr(far, "GROWTH_MAX", 1)
    lists = [{"known": [[KEY[0], f"a{at}", *KNOWN[2:]]]} for at in range(3)]
    with said({"count": 1}, *lists) as pipe:
        ledger = far.FarLedger(pipe, "source", None)
        ledger.count()
        ledger.known_after(None)
        ledger.known_after((KEY[0], "a0"))
        with pytest.raises(LedgerError, match="far more exchanges than it has"):
            ledger.known_after((KEY[0], "a1"))


@for_each(
    "bundle",
    [
        *(None, [], {"exchanges": 7}, {"exchanges": [7]}, {"exchanges": [["too", "few"]]}),
        {"exchanges": [[[1]] * len(bundles.SENT[exchanges])]},
        {"exchanges": [[0.5] * len(bundles.SENT[exchanges])]},
    ],
)
def test_what_is_no_bundle_ends_the_merge(bundle):
    with said({"bundle": bundle}) as pipe, pytest.raises(LedgerError, match="something else than"):
        far.FarLedger(pipe, "source", None).read([(KEY[0], KEY[1])])


def test_rows_that_were_not_asked_for_are_not_taken(new_sqlite):
    """Of another exchange, which this side has open: it would settle it."""
    url = filled(new_sqlite("far"), "ab")
    with merging.source_at(url) as source:
        first, second = source.known_after(None)
        bundle = {one.name: orjson.loads(text) for one, _, text in source.read([first, second])}
    chosen = far.bundle_of(bundle, [first])
    assert chosen
    for table, names, text in chosen:
        its = names.index("id" if table.name == "exchanges" else "exchange_id")
        assert {row[its] for row in orjson.loads(text)} == {first[1]}
    assert first[1] != second[1]


def test_a_value_that_the_ledger_refuses_is_set_aside(new_sqlite):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "abc")
    with merging.source_at(there) as source, merging.target_at(here) as target:
        keys = [*source.known_after(None)]
        bundle = {one.name: orjson.loads(text) for one, _, text in source.read(keys)}
        at = bundles.SENT[exchanges].index("state")
        bundle["exchanges"][1][at] = "free"
        refused = target.add(keys, lambda chosen: far.bundle_of(bundle, chosen))
    assert [key for key, _ in refused] == [keys[1]]
    assert totals(here)[0] == 2


def served(cut: int | None = None) -> Wire:
    """The real far side; of what it says so many bytes come."""
    if cut is None:
        return Wire(lambda reader, writer: serving.serve(reader, writer.fileno()))

    def answer(reader: int, writer: IO[bytes]) -> None:
        inner, outer = os.pipe()

        def pass_on() -> None:
            left = cut
            while left > 0 and (data := os.read(inner, left)):
                os.write(writer.fileno(), data)
                left -= len(data)
            writer.close()
            os.close(inner)

        passing = threading.Thread(target=pass_on)
        passing.start()
        serving.serve(reader, outer)
        os.close(outer)
        passing.join()

    return Wire(answer)


def test_a_far_side_of_another_version_is_named():
    with served() as pipe:
        pipe.send({"do": "open", "role": "source", "schema": "0000", "path": None})
        assert f"tokentee for {REVISION}" in pipe.receive()["error"]


def test_the_far_side_answers_what_it_knows_alone(new_sqlite):
    with served() as pipe:
        far.FarLedger(pipe, "source", file_of(filled(new_sqlite(), "a")))
        pipe.send({"do": "add", "keys": [7, [1, 2], ["x", "y"]]})
        assert "unknown request" in pipe.receive()["error"]


def test_bundles_that_are_too_long_are_halved(new_sqlite, monkeypatch):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "abcdef")
    with served() as pipe, merging.source_at(there) as source:
        ledger = far.FarLedger(pipe, "source", file_of(there))
        keys = [*ledger.known_after(None)]
        whole_length = sum(len(text) for _, _, text in source.read(keys))
        monkeypatch.setattr(far, "MESSAGE_BYTES_MAX", whole_length // 2)
        with merging.target_at(here) as target:
            assert target.add(keys, ledger.read) == []
    assert contents(here) == contents(there)
    other = new_sqlite("other")
    with served() as pipe, merging.source_at(there) as source:
        ledger = far.FarLedger(pipe, "target", file_of(other))
        assert ledger.add(keys, source.read) == []
        monkeypatch.setattr(far, "MESSAGE_BYTES_MAX", 400)
        assert ledger.add(keys[:1], source.read) == [(keys[0], "it is too long to be sent")]
    assert contents(other) == contents(there)


@pytest.mark.parametrize("role", ["source", "target"])
def test_a_merge_that_is_cut_anywhere_goes_on(role, new_sqlite, monkeypatch):
    """Cut at every so many bytes of what the far side says; then whole, and once more."""
    monkeypatch.setattr(merging, "BUNDLE_EXCHANGES_MAX", 2)
    source, target = filled(new_sqlite("source"), "abcde"), new_sqlite("target")

    def merge(cut: int | None) -> None:
        path = file_of(source if role == "source" else target)
        with served(cut) as pipe:
            ledger = far.FarLedger(pipe, role, path)
            monkeypatch.setattr(far, "connect", lambda *_: Given(ledger))
            pair = ("ssh://x", target) if role == "source" else (source, "ssh://x")
            merging.sync(*pair)

    for cut in range(60, 12_000 if role == "source" else 1_000, 500 if role == "source" else 40):
        with suppress(LedgerError, ConnectionError):
            merge(cut)
    merge(None)
    assert contents(source) == contents(target)
    merge(None)
    assert contents(source) == contents(target)
    assert rows(target, "SELECT COUNT(*) FROM exchanges") == [(5,)]


class Given:
    def __init__(self, ledger: far.FarLedger) -> None:
        self.ledger = ledger

    def __enter__(self) -> far.FarLedger:
        return self.ledger

    def __exit__(self, *_: object) -> None: ...
