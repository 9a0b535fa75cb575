"""The steps of the image, run one after the other without a container.

Each instruction of the Dockerfile is carried out in a folder that stands for the image's root:
paths of the image are paths below it, the base image is an environment with this Python, and the
package index is the wheel of this checkout. What only a container or root can do is compared
instead: the user's number, the ports, the volume.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from addon.deploy.kinds import write
from tests.proxy.mitmdump import free_port
from tests.test_wheel import ROOT, uv_command

pytestmark = [pytest.mark.process, pytest.mark.proxy, pytest.mark.timeout(400)]
START_SECONDS_MAX = 100
STOP_SECONDS_MAX = 30
PATHS = re.compile(r"(?<![\w./])/(?:etc|var|tmp)/[\w/.-]*")


def instructions(text: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, its words) of a Dockerfile, lines put together."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (name, words)
        for name, _, words in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


@dataclass
class Image:
    """What the instructions leave, below a folder."""

    root: Path
    context: Path
    environment: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    """Name -> number."""
    user: str = "root"
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    stop_signal: str = ""
    volumes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)

    @property
    def sent(self) -> list[str]:
        """What Docker is sent of the context."""
        return (self.context / ".dockerignore").read_text().splitlines()

    @property
    def bin(self) -> Path:
        return self.root / "python" / "bin"

    def below(self, text: str) -> str:
        """The text with the image's paths below the folder."""
        return PATHS.sub(lambda found: f"{self.root}{found[0]}", text)

    def uv(self, *words: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        command = [*uv_command(self.context), *words]
        subprocess.run(command, check=True, cwd=self.context, timeout=300, env=environment)

    def carry_out(self, name: str, words: str) -> None:
        """One instruction; a new kind of one fails here."""
        match name:
            case "FROM":
                assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+", words)
                self.uv("venv", "--quiet", "--python", sys.executable, str(self.bin.parent))
            case "ENV":
                for pair in shlex.split(words):
                    key, _, value = pair.partition("=")
                    self.environment[key] = self.below(value)
            case "RUN":
                program, *rest = shlex.split(words)
                {"pip": self._pip, "useradd": self._useradd}[program](rest)
            case "COPY":
                *sources, target = shlex.split(words)
                into = Path(self.below(target))
                folder = into if target.endswith("/") else into.parent
                folder.mkdir(parents=True, exist_ok=True)
                for source in sources:
                    assert f"!{source}" in self.sent or f"!*{Path(source).suffix}" in self.sent
                    shutil.copy(self.context / source, into)
            case "USER":
                assert words in self.users.values()
                self.user = words
            case "VOLUME":
                self.volumes += words.split()
            case "EXPOSE":
                self.ports += words.split()
            case "HEALTHCHECK":
                self.health = json.loads(words.partition("CMD ")[2])
            case "STOPSIGNAL":
                self.stop_signal = words
            case "ENTRYPOINT":
                self.entrypoint = [self.below(word) for word in json.loads(words)]
            case _:
                raise AssertionError(f"the test does not know {name}")

    def _pip(self, words: list[str]) -> None:
        command, requirement = words
        assert command == "install"
        python = str(self.bin / "python")
        self.uv("pip", "install", "--quiet", "--python", python, self.below(requirement))

    def _useradd(self, words: list[str]) -> None:
        home = Path(self.below(words[words.index("--home-dir") + 1]))
        home.mkdir(parents=True)
        self.users[words[-1]] = words[words.index("--uid") + 1]

    def words_of(self, command: list[str]) -> list[str]:
        """A command with the image's own program."""
        return [str(self.bin / command[0]), *command[1:]]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    context = tmp_path / "context"
    context.mkdir()
    made = tmp_path / "made"
    built = Image(root=tmp_path / "root", context=context)
    built.uv("build", "--quiet", "--wheel", "--out-dir", str(made), str(ROOT))
    (wheel,) = made.glob("*.whl")
    write("docker", context, wheel=wheel)
    for name, words in instructions((context / "Dockerfile").read_text()):
        built.carry_out(name, words)
    return built


def test_the_image_starts_is_healthy_and_stops(image: Image):
    assert image.user not in ("root", "0")
    assert image.volumes == ["/var/lib/tokentee"]
    config = Path(image.entrypoint[-1])
    text = config.read_text()
    assert {*re.findall(r'listen = "[\d.]+:(\d+)"', text)} == {*image.ports}
    health_port = free_port()
    text = text.replace("0.0.0.0:9464", f"127.0.0.1:{health_port}")
    text = re.sub(r"0\.0\.0\.0:800\d", lambda _: f"127.0.0.1:{free_port()}", text)
    config.write_text(text)
    environment = {"PATH": f"{image.bin}:{os.environ['PATH']}", **image.environment}
    probe = [word.replace("9464", str(health_port)) for word in image.words_of(image.health)]

    def is_healthy() -> bool:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    assert not is_healthy()
    process = subprocess.Popen(
        image.words_of(image.entrypoint), env=environment, cwd=image.root, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (listens(health_port) and is_healthy()):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "it did not become healthy"
            time.sleep(0.05)
        process.send_signal(signal.Signals[image.stop_signal])
        said, _ = process.communicate(timeout=STOP_SECONDS_MAX)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    home = Path(image.environment["HOME"])
    assert list(home.rglob("*.sqlite3")), "the ledger is in the volume"
    written = {path for path in image.root.rglob("*") if path.is_file()}
    outside = {
        path
        for path in written
        if not path.is_relative_to(home)
        and not path.is_relative_to(image.bin.parent)
        and path.parent != config.parent
        and path.suffix != ".whl"
    }
    assert not outside, "the file system of the image is read-only"


def listens(port: int) -> bool:
    """Looked at before the health check, which takes a process of its own."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_an_instruction_goes_on_after_a_backslash():
    text = '# note\nFROM a\nHEALTHCHECK --interval=1s \\\n    CMD ["x"]\n\nUSER 1\n'
    assert instructions(text) == [
        ("FROM", "a"),
        ("HEALTHCHECK", '--interval=1s  CMD ["x"]'),
        ("USER", "1"),
    ]
