"""`tokentee run --workers N` in processes of its own, and clients that load it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.proxy.client import BrokenHttpError, Ending, Http1
from tests.proxy.mitmdump import START_SECONDS_MAX, Mitmdump
from tests.proxy.pair import OPENAI, headers_for
from tests.proxy.rows import eventually


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

    def __init__(self, name: str, address: tuple[str, int], *, keeps: bool) -> None:
        self.sent: list[str] = []
        self.ended: list[str] = []
        self.broken: list[str] = []
        """Requests whose answer broke off, or never came."""
        self.refused = 0
        """Connections that were not accepted."""
        self._name = name
        self._address = address
        self._keeps = keeps
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
        tag = f"{self._name}.{len(self.sent)}"
        self.sent.append(tag)
        try:
            connection.send(
                "POST", OPENAI.target, headers_for(OPENAI, tag), OPENAI.request(asked=None)
            )
            answer = connection.receive()
        except (OSError, BrokenHttpError):
            self.broken.append(tag)
            return False
        if answer.ending is not Ending.TERMINATED or answer.status != 200:
            self.broken.append(tag)
            return False
        assert answer.body == b"".join(OPENAI.frames)
        self.ended.append(tag)
        return answer.header("connection") != "close"


@contextlib.contextmanager
def loaded(address: tuple[str, int], count: int) -> Iterator[list[Client]]:
    """Clients at work; half of them keep their connections."""
    clients = [Client(f"c{at}", address, keeps=at % 2 == 0).start() for at in range(count)]
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
