"""A real mitmdump in a process of its own, listening on loopback, ended by its process id."""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from tests.proxy.forked import Forked

REPOSITORY = Path(__file__).parents[2]
TEE = REPOSITORY / "addon" / "tee.py"
SCRIPTS = Path(__file__).parent / "scripts"
BARE = SCRIPTS / "bare.py"

START_SECONDS_MAX = 100
STOP_SECONDS_MAX = 100
"""As for a start: a process that refuses to start must import everything first."""

_LISTENING = re.compile(r"listening at (127\.0\.0\.\d+):(\d+)")


LOG_SECONDS_MAX = 60
"""Until a line is logged: a bound, for a machine with much else to do."""

# Below those from which the kernel picks one for a client's end, or for a server that asks for any:
# another test would get it before it is used. Each process of a run has its own, each once.
_OWN = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_PORTS = itertools.cycle(
    random.SystemRandom().sample(
        range(20_000 + _OWN, 32_000, 16), k=750
    )  # tests seed the other one
)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, and that the kernel gives to nobody."""
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class DidNotStartError(AssertionError):
    """mitmdump ended before it listened."""


@dataclass
class Mitmdump:
    """`with Mitmdump(folder, upstreams=[...]) as proxy:`; `proxy.address(0)` is the first port.

    Each upstream gets a reverse mode on a loopback address of its own (127.0.0.1, 127.0.0.2, …)
    with a port that the kernel picks, which the log then tells: nothing is guessed, and nothing
    is waited for but that line.
    """

    ACTIVE: ClassVar[str] = "tokentee: ledger "
    """Our one line in the log when the addon has come up."""

    folder: Path
    """For the configuration and, unless `options` say otherwise, the ledger."""
    upstreams: Iterable[str]
    """`http://127.0.0.1:1234`; a full mode such as `regular` goes too."""
    script: Path | None = TEE
    beside: Iterable[Path] = ()
    """Scripts loaded before `script`."""
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Iterable[str] = ()
    tool: str = "mitmdump"
    """Or mitmweb; or tokentee, which is `tokentee run` without a command."""
    has_own_interpreter: bool = False
    """Start Python and import all, as a user does; or fork a process that has imported it."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def authority(self) -> Path:
        """The certificate that clients must trust."""
        return self.folder / "mitmproxy-ca-cert.pem"

    def address(self, index: int = 0) -> tuple[str, int]:
        host = f"127.0.0.{index + 1}"
        return host, self._ports[host]

    def chosen_port(self) -> int:
        """The port of the next listener; 0: the kernel picks it."""
        return 0

    def start(self) -> Self:
        """Start, and come back when every port listens and the ledger is active."""
        self.launch()
        wanted = len(list(self.upstreams))
        with_tee = self.script == TEE

        def is_ready() -> bool:
            return len(self._ports) == wanted and (not with_tee or self.has_logged(self.ACTIVE))

        if not self.wait_until(is_ready, START_SECONDS_MAX):
            self.stop()
            raise DidNotStartError(self.log)
        return self

    def launch(self) -> None:
        """Start, and do not wait for anything."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines: list[str] = []
        self._ports: dict[str, int] = {}
        self._news = threading.Condition()
        self._ended = False
        options = {
            "confdir": str(self.folder),
            "termlog_verbosity": "info",
            **({"flow_detail": "0"} if self.tool == "mitmdump" else {}),
            **self.options,
        }
        if self.script == TEE:
            options.setdefault("ledger_url", f"sqlite:///{self.ledger}")
        words: list[str] = []
        for index, upstream in enumerate(self.upstreams):
            mode = f"reverse:{upstream}" if "://" in upstream else upstream
            words += ["--mode", f"{mode}@127.0.0.{index + 1}:{self.chosen_port()}"]
        is_host = self.tool == "tokentee"  # and brings the recorder along
        for script in [*self.beside, *([self.script] if self.script and not is_host else [])]:
            words += ["-s", str(script)]
        for name, value in options.items():
            words += ["--set", f"{name}={value}"]
        words += self.arguments
        environment = os.environ | {"TOKENTEE_LEDGER": "", "NO_COLOR": "1"} | dict(self.environment)
        self.process = self._popen(words, environment)
        self._reader = threading.Thread(target=self._read_log, name="mitmdump log", daemon=True)
        self._reader.start()

    def _popen(
        self, words: list[str], environment: dict[str, str]
    ) -> "subprocess.Popen[str] | Forked":
        code = f"from mitmproxy.tools.main import {self.tool}; {self.tool}()"
        if self.tool == "tokentee":
            code, words = "from addon.cli import main; main()", ["run", *words]
            environment = environment | {"PYTHONPATH": str(REPOSITORY)}
        if not self.has_own_interpreter:
            return Forked(self.tool, words, folder=self.folder, environment=environment)
        return subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=environment | {"PYTHONUNBUFFERED": "1"},
        )

    @property
    def log(self) -> str:
        return "\n".join(self._lines)

    def has_logged(self, text: str) -> bool:
        return any(text in line for line in self._lines)

    def wait_until(self, is_so: Callable[[], bool], seconds_max: float = LOG_SECONDS_MAX) -> bool:
        """Wait for something that a log line announces; False if the process ends first."""
        with self._news:
            return self._news.wait_for(lambda: is_so() or self._ended, seconds_max) and is_so()

    def wait_for_log(self, text: str, seconds_max: float = LOG_SECONDS_MAX) -> bool:
        return self.wait_until(lambda: self.has_logged(text), seconds_max)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process and give its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.stop(signal.SIGKILL)

    def wait(self) -> int:
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._reader.join(STOP_SECONDS_MAX)
            assert self.process.stdout is not None
            self.process.stdout.close()
        return code

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self._lines.append(line.rstrip())
                if found := _LISTENING.search(line):
                    self._ports[found[1]] = int(found[2])
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
