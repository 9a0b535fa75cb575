"""What recording costs beside the event loop: the writer's commits, and a turn of shipping.

    uv run python -m tests.bench --parts writer
    uv run python -m tests.bench --parts writer --against PATH    # another checkout, in turn

SQLite      CPU per exchange through `Batches.write`, by the size of a batch: admitted, priced,
            digested, committed. `live` is an open row in one batch and its settled one in the
            next; `merged` is both in one batch, as in replay. Beside it the bytes that an exchange
            adds to the WAL, and the statements that it takes, those of triggers included.
PostgreSQL  CPU here per exchange of a shipping turn, by the exchanges that wait in the spool, and
            the bytes of the server's WAL.

Rounds run in turn, and the median is shown with its range. CPU is user and system time of this
process, so that a shared machine disturbs it little.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace

from ledger.model.exchange import Exchange, Outcome, Reading, State
from ledger.model.usage import Usage
from ledger.parts.sync import bundles, merging, shipper
from ledger.pricing.prices import PriceBook
from ledger.store import db
from ledger.store.processes.supervision import SetAside
from ledger.store.writing.batch_insert import ROWS_MAX
from ledger.store.writing.batches import Batches
from ledger.store.writing.incoming import Job
from ledger.store.writing.ledger_file import LedgerFile
from ledger.store.writing.unwritten import Trouble
from tests.ledger.written import opened, reading

SIZES = (1, 4, 16, ROWS_MAX)
EXCHANGES = 512
"""Of one size in one round."""
SHIPPED = 256
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)

type Figures = dict[str, float]


def pair_of(number: int) -> tuple[Exchange, Exchange, Reading]:
    """An ordinary exchange: as it is opened, as it is settled, and its reading."""
    at = BEGIN + timedelta(milliseconds=number)
    fresh = opened(
        str(uuid.uuid4()),
        at=at,
        provider="openai",
        origin="https://api.openai.com:443",
        request_model="gpt-4o-mini",
        streamed=True,
        request_bytes=1234,
        usage_injected=True,
        key_fingerprint=f"{number % 8:032x}",
        key_hint="abcd",
        user_agent="OpenAI/Python 2.1.0",
        tags={"team": "search"},
        request_digest=uuid.uuid4().hex,
    )
    settled = replace(
        fresh,
        state=State.SETTLED,
        outcome=Outcome.COMPLETE,
        response_id=f"chatcmpl-{uuid.uuid4().hex}",
        response_model="gpt-4o-mini-2024-07-18",
        http_status=200,
        finish_reason="stop",
        first_byte_at=at,
        first_token_at=at,
        settled_at=at + timedelta(milliseconds=700),
        response_bytes=5000,
        client_bytes=4900,
        removed_bytes=100,
        upstream_digest=uuid.uuid4().hex * 2,
        client_digest=uuid.uuid4().hex * 2,
        events=20,
        content_digest=uuid.uuid4().hex,
    )
    usage = {
        "prompt_tokens": 100 + number % 900,
        "completion_tokens": 20,
        "total_tokens": 120 + number % 900,
        "prompt_tokens_details": {"cached_tokens": 50, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    read = reading(
        fresh,
        meter_version="0.2.0",
        usage=Usage(
            input_tokens=100 + number % 900,
            cache_read_tokens=50,
            output_tokens=20,
            reasoning_tokens=0,
            input_audio_tokens=0,
            output_audio_tokens=0,
        ),
        usage_json=json.dumps(usage),
        read_at=at + timedelta(milliseconds=700),
    )
    return fresh, settled, read


class Writing:
    """A ledger's file and its batches, without the thread."""

    def __init__(self, path: Path, *, spooling: bool = False) -> None:
        self.path = path
        self.engine = db.ensure(f"sqlite:///{path}")
        self.file = LedgerFile(path, shown_url=str(path), spooling=spooling, log=print)
        self.file.open()
        self.batches = Batches(
            self.file,
            price=PriceBook.load(None).price,
            trouble=Trouble(path, log=print),
            set_aside=SetAside(None, log=print),
            resolve=_fail,
        )
        self.batches.node = "host/1/1"

    def write(self, pairs: Sequence[tuple[Exchange, Exchange, Reading]], *, live: bool) -> None:
        """One batch: the open rows before it, where it is live, then the settled ones."""
        if live:
            self.batches.write([Job(opened) for opened, _, _ in pairs])
        self.batches.write([Job(settled, reading) for _, settled, reading in pairs])

    def wal_bytes(self) -> int:
        """How long the WAL is."""
        return self.path.with_name(f"{self.path.name}-wal").stat().st_size

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()
        self.engine.dispose()


def _fail(jobs: Sequence[Job], error: str | None) -> None:
    raise AssertionError((jobs, error))


def sqlite(folder: Path) -> Figures:
    """CPU of every size, live and merged, in a ledger that has some thousand rows."""
    writing = Writing(folder / "ledger.sqlite3")
    found: Figures = {}
    number = 0

    def pairs_of(count: int) -> list[tuple[Exchange, Exchange, Reading]]:
        nonlocal number
        number += count
        return [pair_of(number - count + at) for at in range(count)]

    for batch in range(2_048 // ROWS_MAX):
        writing.write(pairs_of(ROWS_MAX), live=bool(batch % 2))
    for live in (True, False):
        for size in SIZES:
            pairs = pairs_of(EXCHANGES)
            gc.collect()
            cpu = time.process_time()
            for at in range(0, EXCHANGES, size):
                writing.write(pairs[at : at + size], live=live)
            cpu = time.process_time() - cpu
            name = f"sqlite {'live' if live else 'merged'} {size}"
            found[f"{name} CPU µs"] = 1e6 * cpu / EXCHANGES
            found |= {
                f"{name} {what}": value for what, value in _extent(writing, pairs_of, size, live)
            }
    writing.close()
    return found


def _extent(writing: Writing, pairs_of: Any, size: int, live: bool) -> Iterator[tuple[str, float]]:
    """WAL bytes and statements per exchange; apart from the CPU, which counting would disturb."""
    connection = writing.file.connection
    count = 4 * size
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for at in range(4):
        writing.write(pairs_of(size), live=live)
        del at
    yield "WAL bytes", writing.wal_bytes() / count
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    for _ in range(4):
        writing.write(pairs_of(size), live=live)
    connection.set_trace_callback(None)
    yield "statements", len(statements) / count


def postgresql(folder: Path, url: str) -> Figures:
    """CPU here of a shipping turn, by how many exchanges wait."""
    from ledger.store.engines import urls

    writing = Writing(folder / "spool.sqlite3", spooling=True)
    server = sa.create_engine(urls.parse_url(url), isolation_level="AUTOCOMMIT")
    target = db.ensure(url)
    months: set[Any] = set()
    found: Figures = {}
    number = 1_000_000

    def ship(count: int) -> None:
        with writing.engine.connect() as connection:
            keys, last = shipper.pending(connection, count)
            assert last is not None
            assert len(keys) == count, len(keys)
            read = partial(bundles.read, connection)
            assert not merging.deliver(read, target, keys, months)
        with db.writing(writing.engine) as connection:
            shipper.settle_outbox(connection, last, [], now=datetime.now(UTC))

    def fill(count: int) -> None:
        nonlocal number
        for at in range(0, count, ROWS_MAX):
            part = min(ROWS_MAX, count - at)
            writing.write([pair_of(number + each) for each in range(part)], live=False)
            number += part

    fill(64)
    ship(64)
    for size in (*SIZES, SHIPPED):
        turns = max(1, min(SHIPPED // size, 64))
        cpu = 0.0
        before = _lsn(server)
        for _ in range(turns):
            fill(size)
            gc.collect()
            started = time.process_time()
            ship(size)
            cpu += time.process_time() - started
        found[f"postgresql ship {size} CPU µs"] = 1e6 * cpu / (turns * size)
        found[f"postgresql ship {size} WAL bytes"] = (_lsn(server) - before) / (turns * size)
    writing.close()
    target.dispose()
    server.dispose()
    return found


def _lsn(server: sa.Engine) -> int:
    with server.connect() as connection:
        text = sa.text("SELECT pg_current_wal_insert_lsn() - '0/0'")
        return int(connection.execute(text).scalar_one())


def once(databases: Sequence[str]) -> Figures:
    """One round in this process."""
    found: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "sqlite" in databases:
            found |= sqlite(folder)
        if "postgresql" in databases:
            from tests.bench.bench_ledger import postgres

            with postgres(folder) as url:
                found |= postgresql(folder, url)
    return found


def measure(
    *, rounds: int, against: Path | None, databases: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Rounds in turn: the figures of this checkout, and of another one."""
    checkouts = {"this": Path.cwd()} | ({"other": against} if against else {})
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in checkouts}
    for _ in range(rounds):
        for name, path in checkouts.items():
            call = [sys.executable, "-m", "tests.bench.bench_writer", "--once"]
            for database in databases:
                call += ["--database", database]
            environment = os.environ | {"PYTHONPATH": str(path)}
            done = subprocess.run(
                call, cwd=path, env=environment, stdout=subprocess.PIPE, check=True
            )
            for what, value in json.loads(done.stdout).items():
                found[name][what].append(value)
    return found


def show(found: dict[str, dict[str, list[float]]]) -> None:
    """Print the medians, the ranges, and the ratio to the other checkout."""
    for what, values in found["this"].items():
        middle = statistics.median(values)
        line = f"{what:<36} {middle:>9.1f} [{min(values):.1f}-{max(values):.1f}]"
        if other := found.get("other", {}).get(what):
            ratios = [mine / theirs for mine, theirs in zip(values, other, strict=True) if theirs]
            line += f"   other {statistics.median(other):>9.1f}"
            if ratios:
                line += f"   ratio {statistics.median(ratios):.3f}"
                line += f" [{min(ratios):.2f}-{max(ratios):.2f}]"
        print(line)


if __name__ == "__main__":  # `measure` calls it, in this checkout and in another
    print(json.dumps(once([word for word in sys.argv[1:] if not word.startswith("--")])))
