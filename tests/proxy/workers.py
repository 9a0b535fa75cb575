"""`tokentee run --workers N` in processes of its own, and clients that load it."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.proxy import rows
from tests.proxy.client import BrokenHttpError, Ending, Http1
from tests.proxy.mitmdump import START_SECONDS_MAX, Mitmdump, free_port
from tests.proxy.pair import OPENAI, post
from tests.proxy.rows import eventually

type Asked = Sequence[tuple[bytes, bytes]]
"""Requests that a client sends in turn, each with the answer that it must get."""
UNASKED: Asked = [(OPENAI.request(asked=None), b"".join(OPENAI.frames))]


class Workers(Mitmdump):
    """`with Workers(folder, upstream.url) as workers:`; ended by its process id."""

    ACTIVE = " workers listening at "

    def __init__(
        self,
        folder: Path,
        upstream: str,
        *,
        count: int = 2,
        arguments: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        words = ("--workers", str(count), *arguments)
        super().__init__(folder, upstreams=[upstream], tool="tokentee", arguments=words, **more)

    def chosen_port(self) -> int:
        """Workers share a port, which must be named."""
        return free_port()

    def has_said(self, text: str, count: int = 1) -> bool:
        """Whether the log comes to have so many lines with a text."""
        return eventually(lambda: self.log.count(text) >= count, START_SECONDS_MAX)

    def pids(self) -> list[int]:
        """The processes of the workers."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Client:
    """One client that asks again and again until told to stop, on kept and on new connections.

    It notes which requests it sent, of which it saw the end, and what it was refused.
    """

    def __init__(
        self, name: str, address: tuple[str, int], *, keeps: bool, asked: Asked = UNASKED
    ) -> None:
        self.sent: list[str] = []
        self.ended: list[str] = []
        self.broken: list[str] = []
        """Requests whose answer broke off, or never came."""
        self.refused = 0
        """Connections that were not accepted."""
        self._name = name
        self._address = address
        self._keeps = keeps
        self._asked = asked
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> "Client":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._enough.is_set():
            try:
                connection = Http1(self._address)
            except OSError:
                self.refused += 1
                self._enough.wait(0.01)
                continue
            with connection:
                while self._ask(connection) and self._keeps and not self._enough.is_set():
                    pass

    def _ask(self, connection: Http1) -> bool:
        """Whether the connection may be used again."""
        number = len(self.sent)
        body, expected = self._asked[number % len(self._asked)]
        tag = f"{self._name}.{number}"
        self.sent.append(tag)
        try:
            post(connection, OPENAI, tag, body=body)
            answer = connection.receive()
        except (OSError, BrokenHttpError):
            self.broken.append(tag)
            return False
        if answer.ending is not Ending.TERMINATED or answer.status != 200:
            self.broken.append(tag)
            return False
        assert answer.body == expected
        self.ended.append(tag)
        return answer.header("connection") != "close"


@contextlib.contextmanager
def loaded(
    address: tuple[str, int], count: int, *, name: str = "c", asked: Asked = UNASKED
) -> Iterator[list[Client]]:
    """Clients at work; half of them keep their connections."""
    clients = [
        Client(f"{name}{at}", address, keeps=at % 2 == 0, asked=asked).start()
        for at in range(count)
    ]
    try:
        yield clients
    finally:
        for each in clients:
            each.stop()


def wait_for_ends(clients: list[Client], count: int) -> None:
    """Wait until each has seen so many ends more."""
    wanted = [len(each.ended) + count for each in clients]
    assert eventually(
        lambda: all(len(each.ended) >= ends for each, ends in zip(clients, wanted, strict=True)),
        START_SECONDS_MAX,
    ), f"{wanted} ends wanted, seen: {[len(each.ended) for each in clients]}"


def check_rows(ledger: Path, *, ended: set[str], sent: set[str], without_tag: int = 0) -> None:
    """Each request that ended for its client has one row, settled and whole; no row twice."""
    found = rows.by_tag(ledger, "case")
    assert len(found.pop("", [])) <= without_tag
    missing = sorted(ended - set(found))
    assert not missing, f"{len(missing)} of {len(ended)} ends that were seen have no row: {missing}"
    assert set(found) <= sent
    for tag, of_tag in found.items():
        assert len(of_tag) == 1, f"{tag} has {len(of_tag)} rows"
        (row,) = of_tag
        assert row["reading_count"] == 1, tag
        if tag in ended:
            assert (row["state"], row["output_tokens"]) == ("settled", 64), tag
        else:
            assert row["state"] in ("settled", "lost"), tag
    assert rows.query(ledger, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
