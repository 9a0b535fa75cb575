"""Archives read by Dask workers: the same rows as one process makes, also when a worker is killed,
from local files, an S3 store and any file system that fsspec knows."""

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import fsspec
import pytest

from addon.commands.replay import main
from addon.recordings import replay_dask
from addon.recordings.files import ArchiveFile, files_in, parts_of
from addon.recordings.replay import ReplayJob, replay_here
from addon.recordings.replay_dask import cluster_client, replay_with_client
from ledger.model.errors import LedgerError
from ledger.store import db
from tests.bench import recordings

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
    # Dask's own sockets and threads, when a worker is killed.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FILES, EACH = 4, 40
ROWS = (
    "SELECT e.id, e.opened_at, e.dialect, e.outcome, e.response_id, e.response_model, "
    "e.key_fingerprint, r.input_tokens, r.output_tokens, r.usage_json, "
    "(SELECT sum(c.amount_picousd) FROM charges c WHERE c.exchange_id = e.id) "
    "FROM exchanges e JOIN readings r ON r.exchange_id = e.id ORDER BY e.id"
)


def rows(ledger: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(ledger)) as connection:
        return connection.execute(ROWS).fetchall()


def say_nothing(*_: object) -> None:
    """No log, no bar."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures, plain and gzipped, and flow files; the last exchanges of a file come again in the
    next one."""
    folder = tmp_path_factory.mktemp("archive")
    made = list(recordings.shorts(FILES * EACH + 20))
    for at in range(FILES):
        suffix = ("jsonl", "jsonl.gz", "mitm")[at % 3]
        some = made[at * EACH : (at + 1) * EACH + 20]
        recordings.write(folder / f"{at}.{suffix}", iter(some))
    return folder


@pytest.fixture(scope="module")
def expected(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """What one process reads."""
    ledger = tmp_path_factory.mktemp("expected") / "ledger.sqlite3"
    tally = replay_here(
        job_of(ledger), sorted(archive.iterdir()), log=say_nothing, advance=say_nothing
    )
    assert tally.new == FILES * EACH + 20
    return rows(ledger)


def job_of(ledger: Path) -> ReplayJob:
    return ReplayJob(ledger_url=f"sqlite:///{ledger}", url=None, prices=None)


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    with cluster_client("local", 2) as found:
        yield found


def read(client: object, files: list[ArchiveFile], ledger: Path, advance=say_nothing):
    return replay_with_client(client, job_of(ledger), files, log=say_nothing, advance=advance)


def test_workers_make_the_rows_of_one_process_and_a_second_reading_adds_none(
    client, archive, expected, tmp_path
):
    ledger = tmp_path / "ledger.sqlite3"
    files = files_in([str(archive)], bodies_too=False)
    tally = read(client, files, ledger)
    assert (tally.new, tally.faults, tally.refused) == (len(expected), 0, 0)
    assert tally.known == (FILES - 1) * 20
    assert tally.by_dialect.total() == tally.new
    assert rows(ledger) == expected
    again = read(client, files, ledger)
    assert (again.new, again.known) == (0, FILES * (EACH + 20))
    assert rows(ledger) == expected


def test_a_killed_worker_changes_nothing(archive, expected, tmp_path):
    ledger = tmp_path / "ledger.sqlite3"
    killed = threading.Event()
    with cluster_client("local", 2) as client:
        pids = list(client.run(os.getpid).values())

        def kill_one(*_: object) -> None:
            if not killed.is_set():
                killed.set()
                os.kill(pids[0], signal.SIGKILL)

        tally = read(client, files_in([str(archive)], bodies_too=False), ledger, advance=kill_one)
        assert killed.is_set()
        assert pids[0] not in client.run(os.getpid).values()
    assert tally.new == len(expected)
    assert tally.faults == 0
    assert rows(ledger) == expected


def test_parts_of_one_file_are_read_once_each(client, archive, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(replay_dask, "DASK_PART_BYTES", 20_000)
    files = files_in([str(archive)], bodies_too=False)
    parts = parts_of(
        files, part_bytes=replay_dask.DASK_PART_BYTES, parts_max=replay_dask.DASK_PARTS_MAX
    )
    assert len(parts) > 2 * len(files)
    ledger = tmp_path / "ledger.sqlite3"
    assert read(client, files, ledger).new == len(expected)
    assert rows(ledger) == expected


def test_a_lost_exchange_is_settled_under_its_own_start(client, archive, expected, tmp_path):
    ledger = tmp_path / "ledger.sqlite3"
    db.ensure(job_of(ledger).ledger_url).dispose()
    first = expected[0][0]
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute(
            "INSERT INTO exchanges (id, opened_at, state, outcome, settled_at, source, origin, "
            "provider, dialect, operation, path, tags) VALUES (?, '2026-03-01 00:00:00.000777Z', "
            "'lost', 'lost', '2026-03-01 00:00:01.000000Z', 'live', 'https://api.openai.com:443', "
            "'openai', 'openai.chat', 'chat', '/v1/chat/completions', '{}')",
            (first,),
        )
        connection.commit()
    tally = read(client, files_in([str(archive)], bodies_too=False), ledger)
    assert tally.new == len(expected)
    found = rows(ledger)
    assert found[0][1] == "2026-03-01 00:00:00.000777Z"
    assert [row[:1] + row[2:] for row in found] == [row[:1] + row[2:] for row in expected]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 store on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def test_an_archive_in_an_object_store_is_read_by_the_command(
    store, archive, expected, tmp_path, capsys
):
    import s3fs

    s3 = s3fs.S3FileSystem(skip_instance_cache=True)
    s3.mkdir("captures")
    s3.put(str(archive) + "/", "captures/2026/", recursive=True)
    ledger = tmp_path / "ledger.sqlite3"
    assert main(["s3://captures/2026"], job_of(ledger), jobs=1, dask="local") == 0
    assert rows(ledger) == expected
    said = capsys.readouterr().err
    assert "exchanges read" in said
    with closing(sqlite3.connect(ledger)) as connection:
        (capture,) = connection.execute("SELECT capture FROM exchanges LIMIT 1").fetchone()
    assert capture.startswith("s3://captures/2026/")
    flow_files = files_in(["s3://captures/2026/*.mitm"], bodies_too=False)
    assert [Path(each.name).name for each in flow_files] == ["2.mitm"]
    with pytest.raises(LedgerError, match="no such file or folder"):
        files_in(["s3://captures/2027"], bodies_too=False)
    with pytest.raises(LedgerError, match=r"cannot be listed|no such file"):
        files_in(["s3://nosuch/2026"], bodies_too=False)


def test_what_a_worker_cannot_read_is_named_and_the_rest_is_read(
    client, archive, expected, tmp_path
):
    gone = ArchiveFile(name=str(tmp_path / "gone.jsonl"), size=10)
    other = ArchiveFile(name="s4://x/y.jsonl", size=10)
    files = [*files_in([str(archive)], bodies_too=False), gone, other]
    ledger = tmp_path / "ledger.sqlite3"
    tally = read(client, files, ledger)
    assert (tally.new, tally.faults) == (len(expected), 2)
    assert {one.where for one in tally.unreadable} == {gone.name, other.name}


def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(replay_dask, "SCHEDULER_SECONDS_MAX", 1)
    with (
        pytest.raises(LedgerError, match=r"--dask tcp://127.0.0.1:9: no scheduler answers there"),
        cluster_client("tcp://127.0.0.1:9", None),
    ):
        pass


def test_files_of_any_file_system_keep_their_time(archive):
    memory = fsspec.filesystem("memory")
    memory.pipe("/captures/a.jsonl", (archive / "0.jsonl").read_bytes())
    memory.pipe("/captures/notes.txt", b"none")
    (found,) = files_in(["memory://captures"], bodies_too=False)
    assert found.name == "memory:///captures/a.jsonl"
    assert found.size == (archive / "0.jsonl").stat().st_size
    assert found.modified_at == memory.modified("/captures/a.jsonl").timestamp()
    local = files_in([f"file://{archive}/*.mitm"], bodies_too=False)
    assert local == files_in(sorted(map(str, archive.glob("*.mitm"))), bodies_too=False)


@pytest.mark.parametrize(
    ("package", "path", "extra"),
    [
        ("distributed", "0.jsonl", "dask"),
        ("fsspec.core", "s3://captures/2026", "dask"),
        ("s3fs", "s3://captures/2026", "s3"),
    ],
)
def test_a_missing_extra_is_one_line(monkeypatch, archive, tmp_path, package, path, extra):
    # fsspec remembers the file systems that it has imported.
    sys.modules["fsspec.registry"]._registry.pop("s3", None)
    monkeypatch.setitem(sys.modules, package, None)
    name = path if "://" in path else str(archive / path)
    with pytest.raises(LedgerError, match=rf"with tokentee\[{extra}\] it is: "):
        main([name], job_of(tmp_path / "ledger.sqlite3"), jobs=1, dask="local")
    assert not (tmp_path / "ledger.sqlite3").exists()
