"""`tokentee run --workers N` in processes of its own, and clients that load it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.proxy.client import BrokenHttpError, Ending, Http1
from tests.proxy.pair import OPENAI, headers_for

START_SECONDS_MAX = 100
STOP_SECONDS_MAX = 60
_LISTENING = re.compile(r"^tokentee: \d+ workers listening at 127\.0\.0\.1:(\d+)", re.MULTILINE)


@dataclass
class Workers:
    """`with Workers(folder, upstream.url) as workers:`; ended by its process id."""

    folder: Path
    upstream: str
    count: int = 2
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ledger_url: str | None = None

    def __enter__(self) -> "Workers":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    @property
    def address(self) -> tuple[str, int]:
        found = _LISTENING.search(self.log)
        assert found is not None, self.log
        return "127.0.0.1", int(found[1])

    def start(self) -> "Workers":
        self.launch()
        if not self.wait_until(lambda: _LISTENING.search(self.log) is not None):
            self.stop()
            raise AssertionError(self.log)
        return self

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log_path = self.folder / "stderr"
        options = {
            "confdir": str(self.folder),
            "ledger_url": self.ledger_url or f"sqlite:///{self.ledger}",
            **self.options,
        }
        words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from addon.cli import main; main()", "run",
                 "--workers", str(self.count), "--mode", f"reverse:{self.upstream}@127.0.0.1:0",
                 *words, *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=os.environ | {"TOKENTEE_LEDGER": ""} | dict(self.environment),
            )  # fmt: skip

    def wait_until(self, is_so: Callable[[], bool], seconds_max: float = START_SECONDS_MAX) -> bool:
        """Wait for what the log announces; False if the process ends first."""
        pause = threading.Event()
        for _ in range(int(seconds_max * 20)):
            if is_so():
                return True
            if self.process.poll() is not None:
                return is_so()
            pause.wait(0.05)
        return False

    def wait_for_log(self, text: str, count: int = 1) -> bool:
        return self.wait_until(lambda: self.log.count(text) >= count)

    def pids(self) -> list[int]:
        """The processes of the workers."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


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
    pause = threading.Event()
    for _ in range(START_SECONDS_MAX * 20):
        if all(len(each.ended) >= ends for each, ends in zip(clients, wanted, strict=True)):
            return
        pause.wait(0.05)
    raise AssertionError(f"{wanted} ends wanted, seen: {[len(each.ended) for each in clients]}")
