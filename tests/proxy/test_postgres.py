"""Several proxies and one PostgreSQL that comes and goes: late, never lost, never twice."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.store import db
from tests.proxy import rows
from tests.proxy.client import Http1
from tests.proxy.mitmdump import START_SECONDS_MAX, Mitmdump
from tests.proxy.pair import OPENAI, exchange, new_tag, speak
from tests.proxy.relaying import Line
from tests.proxy.upstream import Answer, Request, Upstream, document
from tests.proxy.workers import Workers, loaded, wait_for_ends

pytestmark = [pytest.mark.proxy, pytest.mark.postgres, pytest.mark.timeout(300)]


type Tagged = Callable[[], dict[str, list[dict[str, Any]]]]


@pytest.fixture
def server(new_database: Callable[[], str]) -> sa.URL:
    """An empty database of a PostgreSQL on a socket of its own."""
    return sa.make_url(new_database())


@pytest.fixture
def wire(server: sa.URL) -> Iterator[Line]:
    folder = server.query["host"]
    assert isinstance(folder, str)
    made = Line(f"{folder}/.s.PGSQL.5432")
    made.mend()
    yield made
    made.cut()


@pytest.fixture
def tagged(server: sa.URL) -> Iterator[Tagged]:
    """What the database holds, by tag."""
    engine = sa.create_engine(server)
    query = sa.text(
        "SELECT tags ->> 'case' AS tag, state, outcome, output_tokens,"
        " (SELECT count(*) FROM readings r WHERE r.exchange_id = exchanges.id) AS reading_count"
        " FROM exchanges LEFT JOIN readings ON readings.exchange_id = exchanges.id"
    )

    def read() -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        with engine.connect() as connection, suppress(sa.exc.ProgrammingError):
            for row in connection.execute(query).mappings():
                found.setdefault(row["tag"], []).append(dict(row))
        return found

    yield read
    engine.dispose()


def proxy(folder: Path, upstream: Upstream, server: sa.URL, wire: Line) -> Mitmdump:
    url = server.set(host="127.0.0.1", port=wire.port, query={})
    return Mitmdump(
        folder,
        upstreams=[upstream.url],
        options={
            "ledger_url": url.render_as_string(hide_password=False),
            "tee_hosts": f"127.0.0.1:{upstream.port}=aivene",
        },
        environment={"XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder)},
    )


def test_a_database_that_comes_and_goes(
    tmp_path: Path,
    server: sa.URL,
    wire: Line,
    tagged: Tagged,
) -> None:
    """Two proxies; the wire is cut under load, one proxy is killed meanwhile, all arrives once."""
    db.ensure(server).dispose()  # two proxies that make the schema take as long as all the rest
    sent: list[str] = []

    def send(running: Mitmdump, count: int) -> None:
        for _ in range(count):
            tag = new_tag()
            assert exchange(running, OPENAI, tag).body == b"".join(OPENAI.frames)
            sent.append(tag)

    with Upstream(speak(OPENAI)) as upstream, ExitStack() as started:
        one, two = (proxy(tmp_path / name, upstream, server, wire) for name in ("one", "two"))
        for each in (one, two):
            started.enter_context(each)
        with ThreadPoolExecutor(2) as pool:
            for each in (one, two):
                pool.submit(send, each, 10).result()
        assert rows.eventually(lambda: set(tagged()) == set(sent))

        wire.cut()
        for each in (one, two):
            send(each, 10)
        one.kill()
        one.start()
        send(one, 5)
        assert len(tagged()) == 20
        wire.mend()
        assert rows.eventually(lambda: set(tagged()) == set(sent))
    found = tagged()
    assert len(sent) == 45
    for tag in sent:
        (row,) = found[tag]
        assert (row["state"], row["outcome"]) == ("settled", "complete"), tag
        assert (row["output_tokens"], row["reading_count"]) == (64, 1), tag
    assert "Addon error" not in one.log + two.log


def test_a_database_that_is_not_there_at_the_start(
    tmp_path: Path,
    server: sa.URL,
    wire: Line,
    tagged: Tagged,
) -> None:
    """The traffic does not wait for it, and what was recorded arrives when it does."""
    wire.cut()
    with Upstream(speak(OPENAI)) as upstream, proxy(tmp_path, upstream, server, wire) as running:
        tags = [new_tag() for _ in range(3)]
        for tag in tags:
            assert exchange(running, OPENAI, tag).body == b"".join(OPENAI.frames)
        wire.mend()
        assert rows.eventually(lambda: set(tags) <= set(tagged()))


def test_a_response_that_another_proxy_fetches_is_not_booked_again(
    tmp_path: Path, server: sa.URL, wire: Line
) -> None:
    """The first proxy has the request, the second one alone sees the result fetched."""
    done = {
        "id": "resp_pg",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "usage": {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42},
    }

    def answer(_request: Request) -> Answer:
        return document(json.dumps(done).encode())

    def ask(running: Mitmdump, method: str, path: str, body: bytes) -> None:
        client = Http1(running.address())
        client.send(method, path, [("content-type", "application/json")], body)
        assert json.loads(client.receive().body) == done
        client.close()

    engine = sa.create_engine(server)
    query = sa.text(
        "SELECT COUNT(*), COUNT(*) FILTER (WHERE duplicate_of IS NULL) FROM exchanges "
        "WHERE response_id = 'resp_pg'"
    )

    def arrived() -> tuple[int, int]:
        with engine.connect() as connection, suppress(sa.exc.ProgrammingError):
            return tuple(connection.execute(query).one())
        return 0, 0

    with Upstream(answer) as upstream, ExitStack() as started:
        one, two = (proxy(tmp_path / name, upstream, server, wire) for name in ("one", "two"))
        for each in (one, two):
            started.enter_context(each)
        # The fetched row is there first: the order of arrival does not matter.
        ask(two, "GET", "/v1/responses/resp_pg", b"")
        assert rows.eventually(lambda: arrived() == (1, 1))
        ask(one, "POST", "/v1/responses", json.dumps({"model": "m", "input": "Hi"}).encode())
        assert rows.eventually(lambda: arrived() == (2, 1)), arrived()
        two.stop()
        two.start()
        ask(two, "GET", "/v1/responses/resp_pg", b"")
        assert rows.eventually(lambda: arrived() == (3, 1)), arrived()
    engine.dispose()


def test_workers_share_one_spool_and_one_of_them_ships(
    tmp_path: Path,
    server: sa.URL,
    wire: Line,
    tagged: Tagged,
) -> None:
    """Whichever worker is killed, the other ships what both have recorded, once."""
    url = server.set(host="127.0.0.1", port=wire.port, query={})
    with (
        Upstream(speak(OPENAI)) as upstream,
        Workers(
            tmp_path,
            upstream.url,
            options={
                "tee_hosts": f"127.0.0.1:{upstream.port}=aivene",
                "termlog_verbosity": "warn",
                "ledger_url": url.render_as_string(hide_password=False),
            },
            environment={"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)},
        ) as workers,
        loaded(workers.address(), 4) as clients,
    ):
        for deaths in (1, 2):
            wait_for_ends(clients, 3)
            # The first of them is the older one, and has the turn to ship.
            os.kill(workers.pids()[0], signal.SIGKILL)
            assert workers.has_said("is started again", deaths)
        wait_for_ends(clients, 3)
        for each in clients:
            each.stop()
        ended = {tag for each in clients for tag in each.ended}
        assert rows.eventually(lambda: ended <= set(tagged()), START_SECONDS_MAX)
        assert len(list((tmp_path / "data").rglob("spool/*.sqlite3"))) == 1
        pids = workers.pids()
        workers.stop(signal.SIGKILL)
        assert rows.eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids)), (
            "workers outlive their supervisor"
        )
    found = tagged()
    for tag in ended:
        (row,) = found[tag]
        assert (row["state"], row["output_tokens"], row["reading_count"]) == ("settled", 64, 1), tag
    assert sum(each.refused for each in clients) == 0
