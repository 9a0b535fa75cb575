"""A merge over ssh, with a program `ssh` that runs the command here: both directions, repeated, cut
anywhere, with a far side that lies."""

import io
import json
import os
import stat
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from ledger.model.errors import LedgerError
from ledger.parts.sync import bundles, merging, over_ssh
from ledger.store import secret
from ledger.store.engines.sqlite_file import REVISION
from ledger.store.tables import exchanges
from tests.ledger.parts.sync.test_merging import contents
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


def pull(url: str, target: str, *, with_secret: bool = False) -> merging.Merged:
    return over_ssh.merge(url, target, with_secret=with_secret, on_progress=print)


def push(source: str, url: str, *, with_secret: bool = False) -> merging.Merged:
    return over_ssh.merge(source, url, with_secret=with_secret, on_progress=print)


def test_both_directions_over_ssh(ssh, new_sqlite):
    here, there = filled(new_sqlite("here"), "ab"), filled(new_sqlite("there"), "bcd")
    put(there, (opened("e"), None, ()))
    assert pull(far_of(there), here).exchanges == 4
    assert json.loads((ssh / "arguments").read_text()) == [
        *("-T", "-C", "-p", "2222", "-l", "me", "--", "laptop"),
        'PATH="$PATH:$HOME/.local/bin" tokentee sync --dump -',
    ]
    pushed = push(here, far_of(there))
    assert (pushed.exchanges, pushed.refused) == (5, ())
    assert json.loads((ssh / "arguments").read_text())[-1].endswith(" tokentee sync -")
    before = contents(here)
    assert before == contents(there)
    pull(far_of(there), here)
    push(here, far_of(there))
    assert contents(here) == contents(there) == before


def test_the_secret_goes_to_an_empty_ledger_alone(ssh, new_sqlite):
    ours = b"s" * 32
    source = filled(new_sqlite("source"), "a")
    with on(source) as engine:
        assert secret.store(engine, ours)
    for way in (pull, push):
        target = new_sqlite(f"target-{way.__name__}")
        pair = (far_of(source), target) if way is pull else (source, far_of(target))
        assert not way(*pair, with_secret=True).has_two_secrets
        with on(target) as engine:
            assert secret.known(engine) == ours
            secret._own_path(Path(file_of(target))).unlink()
            assert secret.store(engine, b"t" * 32)
        with pytest.raises(LedgerError, match="--with-secret is for an empty target"):
            way(*pair, with_secret=True)
        assert way(*pair).has_two_secrets


def test_the_far_side_has_a_ledger_of_its_own(ssh, new_sqlite, monkeypatch):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "ab")
    monkeypatch.setenv("TOKENTEE_LEDGER", there)
    pull("ssh://laptop", here)
    assert contents(here) == contents(there)
    put(here, whole(settled("c")))
    push(here, "ssh://laptop/")
    assert contents(here) == contents(there)


def test_a_connection_that_is_cut_is_repeated_without_loss(ssh, new_sqlite, monkeypatch, capfd):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "abc")
    monkeypatch.setenv("CUT", "0")
    with pytest.raises(LedgerError, match="laptop: the connection ended; run it again"):
        pull(far_of(there), here)
    monkeypatch.setenv("CUT", "600")
    with pytest.raises(
        LedgerError, match=r"laptop: interrupted after 0 .*connection ended; run it"
    ):
        pull(far_of(there), here)
    assert "server not responding" in capfd.readouterr().err
    monkeypatch.setenv("CUT", "1")
    with pytest.raises(LedgerError, match="laptop: "):
        push(there, far_of(here))
    monkeypatch.delenv("CUT")
    pull(far_of(there), here)
    assert contents(here) == contents(there)


@pytest.mark.parametrize(
    "url",
    [
        *("ssh://-oProxyCommand=x", "ssh://-oProxyCommand=x/l.db", "ssh://me@-x", "ssh://-l@host"),
        *("ssh://host:0", "ssh://host:65536", "ssh://host:22x", "ssh://", "ssh://ho st"),
        *("ssh://host;touch x", "ssh://$(x)/l.db", "ssh://me:word@host", "ssh://a`x`@host/"),
        *("ssh://host/a%00b", "ssh://%2doProxyCommand=x/l.db", "ssh://host%20x/"),
    ],
)
def test_no_part_of_a_url_is_an_option_or_a_word_of_a_shell(url, ssh, new_sqlite):
    with pytest.raises(LedgerError, match="not a ledger over ssh") as error:
        pull(url, new_sqlite())
    assert "word" not in str(error.value)
    assert not (ssh / "arguments").exists()


def test_a_path_crosses_in_a_line_and_is_percent_decoded(ssh, new_sqlite, tmp_path):
    folder = tmp_path / "a $(touch x) 'b' ?c 100%"
    folder.mkdir()
    here = filled(new_sqlite("here"), "a")
    path = quote(str(folder))
    push(here, f"ssh://laptop{path}/-l.sqlite3")
    assert json.loads((ssh / "arguments").read_text())[-1] == over_ssh.COMMAND + "-"
    assert (folder / "-l.sqlite3").is_file()
    back = new_sqlite("back")
    pull(f"ssh://laptop{path}/-l.sqlite3", back)
    assert contents(back) == contents(here)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("#!/bin/sh\necho 'sh: 1: tokentee: not found' >&2; exit 127\n", "the connection ended"),
        ("#!/bin/sh\nexec cat /dev/zero\n", "no tokentee answers there"),
        ("#!/bin/sh\necho 'hello'; exec sleep 1000\n", "silent for"),
    ],
)
def test_what_does_not_answer_is_named(program, words, ssh, new_sqlite, monkeypatch):
    if words == "silent for":  # what answers may take its time
        monkeypatch.setattr(over_ssh, "SILENCE_SECONDS_MAX", 0.5)
    (ssh / "ssh").write_text(program)
    for ask in (pull, lambda url, here: push(here, url)):
        with pytest.raises(LedgerError, match=f"laptop: {words}"):
            ask("ssh://laptop", filled(new_sqlite(), "a"))


def test_a_far_side_that_reads_nothing_ends_it(ssh, new_sqlite, monkeypatch):
    """Its buffers fill; then it is as silent as one that says nothing."""
    monkeypatch.setattr(over_ssh, "SILENCE_SECONDS_MAX", 0.5)
    monkeypatch.setattr(bundles, "read", lambda *_: [(exchanges, (), f'["{"x" * 9_999_999}"]')])
    (ssh / "ssh").write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(LedgerError, match="laptop: "):
        push(filled(new_sqlite(), "a"), "ssh://laptop")


def test_an_error_of_the_far_side_is_one_line(ssh, new_sqlite, tmp_path):
    with pytest.raises(LedgerError, match="the other side says: there is no ledger"):
        pull(f"ssh://laptop{tmp_path}/none.sqlite3", new_sqlite())
    (tmp_path / "none").write_text("no ledger")
    with pytest.raises(LedgerError, match="the other side says: "):
        push(filled(new_sqlite(), "a"), f"ssh://laptop{tmp_path}/none")


# In one process: a stream with other habits.


def stream_of(url: str, **more: Any) -> bytes:
    stream = BytesIO()
    over_ssh.dump(url, stream.write, **more)
    return stream.getvalue()


def load(data: bytes, url: str) -> merging.Merged:
    return over_ssh.load(over_ssh.messages(BytesIO(data)), url, lambda *_: None)


@for_each("before", [b"", b"welcome\n", b"no end of line ", b"tokentee sync 1 \n"])
def test_what_a_shell_prints_first_is_skipped(before, new_sqlite):
    url = filled(new_sqlite("there"), "ab")
    here = new_sqlite("here")
    load(before + stream_of(url), here)
    assert contents(here) == contents(url)


@pytest.mark.postgres
def test_rows_of_postgresql_have_the_types_of_a_stream(new_sqlite, new_postgres):
    source, shared, back = filled(new_sqlite("source"), "abc"), new_postgres(), new_sqlite("back")
    assert load(stream_of(source), shared).refused == ()
    assert load(stream_of(shared), back).refused == ()
    assert contents(back) == contents(source)


HEAD = {"schema": REVISION, "count": 1, "secret_id": None}
KEY = ["2026-11-02 12:00:00.000000Z", "a"]
WIDTH = len(bundles.SENT[exchanges])


def lines(*messages: Any) -> bytes:
    return over_ssh.MARK + b"".join(orjson.dumps(message) + b"\n" for message in messages)


@for_each(
    "lies",
    [
        *(7, [], "x", {}, {"keys": None}, {"keys": []}, {"keys": 7}, {"keys": [7]}),
        *({"keys": [["now", "a"]]}, {"keys": [[KEY[0], 7]]}, {"keys": [[KEY[0], "x" * 2_000]]}),
        {"keys": [KEY] * (merging.BUNDLE_EXCHANGES_MAX + 1)},
        *({"keys": [KEY], "exchanges": 7}, {"keys": [KEY], "exchanges": [7]}),
        {"keys": [KEY], "exchanges": [["too", "few"]]},
        {"keys": [KEY], "exchanges": [[[1]] * WIDTH]},
        {"keys": [KEY], "exchanges": [[0.5] * WIDTH]},
        *({"error": "\x1b]0;x"}, {"refused": 7, "keys": None}),
    ],
)
def test_what_is_no_line_of_a_stream_ends_the_merge(lies, new_sqlite):
    url = new_sqlite()
    with pytest.raises((LedgerError, ConnectionError)) as error:
        load(lines(HEAD, lies, {"end": True}), url)
    assert "\x1b" not in str(error.value)
    assert totals(url)[0] == 0


@for_each("head", [{}, {"schema": "0000"}, {**HEAD, "count": "x"}, {**HEAD, "secret": 7}, 7])
def test_what_is_no_head_of_a_stream_ends_the_merge(head, new_sqlite):
    with pytest.raises((LedgerError, ConnectionError)):
        load(lines(head, {"end": True}), new_sqlite())


def test_a_stream_of_another_version_is_named(new_sqlite):
    with pytest.raises(LedgerError, match=f"tokentee for {REVISION}, the other one for 0000"):
        load(lines({**HEAD, "schema": "0000"}), new_sqlite())


@for_each(
    "stream",
    [
        # A later one, whose first line has a field more, or which is another stream altogether.
        over_ssh.MARK + json.dumps({**HEAD, "schema": "9999", "more": 1}).encode() + b"\n",
        b'hello\ntokentee sync 99 {"schema": "9999"}\n',
        b'tokentee sync 2 {"schema": "0001"}\n',
    ],
)
def test_a_stream_that_another_version_writes_is_named_at_once(stream, new_sqlite):
    with pytest.raises(LedgerError, match="install the same version on both"):
        over_ssh.load(over_ssh.messages(io.BytesIO(stream)), new_sqlite(), print)


def test_a_stream_without_end_ends_the_merge(new_sqlite, monkeypatch):
    monkeypatch.setattr(over_ssh, "GROWTH_MAX", 1)
    endless = ({"keys": [[KEY[0], f"a{at}"]]} for at in range(9))
    with pytest.raises(LedgerError, match="more than the exchanges that it has"):
        load(lines(HEAD, *endless), new_sqlite())


def test_rows_of_other_exchanges_are_not_taken(new_sqlite):
    """Of another exchange, which this side has open: it would settle it."""
    source = stream_of(filled(new_sqlite("far"), "ab")).removeprefix(over_ssh.MARK)
    head, bundle, end = (orjson.loads(line) for line in source.splitlines())
    first, second = bundle["keys"]
    bundle["keys"] = [first]
    url = new_sqlite("here")
    assert load(lines(head, bundle, end), url).exchanges == 1
    assert rows(url, "SELECT id FROM exchanges") == [(first[1],)]
    assert first[1] != second[1]


def test_a_value_that_the_ledger_refuses_is_set_aside(new_sqlite):
    source = stream_of(filled(new_sqlite("there"), "abc")).removeprefix(over_ssh.MARK)
    head, bundle, end = (orjson.loads(line) for line in source.splitlines())
    bundle["exchanges"][1][bundles.SENT[exchanges].index("state")] = "free"
    here = new_sqlite("here")
    refused = load(lines(head, bundle, end), here).refused
    assert [[*one.key] for one in refused] == [bundle["keys"][1]]
    assert totals(here)[0] == 2


def test_bundles_that_are_too_long_are_halved(new_sqlite, monkeypatch):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "abcdef")
    longest = max(map(len, stream_of(there).splitlines()))
    monkeypatch.setattr(over_ssh, "LINE_BYTES_MAX", longest // 2)
    stream = stream_of(there)
    assert max(map(len, stream.splitlines())) <= longest // 2
    assert load(stream, here).refused == ()
    assert contents(here) == contents(there)
    monkeypatch.setattr(over_ssh, "LINE_BYTES_MAX", 400)
    refused = load(stream_of(there), new_sqlite("other")).refused
    assert [one.error for one in refused] == ["it is too long to be sent"] * 6


def test_a_stream_that_is_cut_anywhere_goes_on(new_sqlite, monkeypatch):
    """Cut at every so many bytes; then whole, and once more."""
    monkeypatch.setattr(over_ssh, "BUNDLE_EXCHANGES_MAX", 2)
    source, target = filled(new_sqlite("source"), "abcde"), new_sqlite("target")
    stream = stream_of(source)
    for cut in range(0, len(stream) - 1, 500):
        with pytest.raises((LedgerError, ConnectionError)):
            load(stream[:cut], target)
    for _ in range(2):
        load(stream, target)
        assert contents(source) == contents(target)
    assert rows(target, "SELECT COUNT(*) FROM exchanges") == [(5,)]


def test_a_stream_goes_through_a_file(new_sqlite, tmp_path):
    here, there = new_sqlite("here"), filled(new_sqlite("there"), "ab")
    tokentee = Path(sys.executable).with_name("tokentee")
    with (tmp_path / "stream").open("wb") as stream:
        subprocess.run([tokentee, "sync", "--dump", there], stdout=stream, check=True)
    with (tmp_path / "stream").open("rb") as stream:
        subprocess.run([tokentee, "sync", "-", here], stdin=stream, check=True)
    assert contents(here) == contents(there)
