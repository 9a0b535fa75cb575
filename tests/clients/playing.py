"""Installs each client in an environment of its own, once, in a cache outside the repository; plays the
clients in the three ways, and compares."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import platformdirs

from tests.clients.matrix import CLIENTS, KEYS, PROGRAMS, Client
from tests.proxy import rows
from tests.proxy.certificates import make_certificates

VARIANTS = ("direct", "run", "mitmdump")
ROOT = Path(__file__).parents[2]
HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "chatgpt.com",
    "generativelanguage.googleapis.com",
    "other.example",
    "git.example",
)
_LIMITS = """
SELECT e.response_id, r.billing, q.provider, q.kind, q.window, q.used_ppm
FROM quotas AS q JOIN exchanges AS e ON e.id = q.exchange_id
JOIN readings AS r ON r.exchange_id = e.id
ORDER BY q.opened_at, q.window
"""
MARGIN_SECONDS = 90
STORE = Path("/etc/ssl/certs/ca-certificates.crt")
OURS_AND_VOLATILE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # ids that clients make
    r"|\b[0-9a-f]{16,64}\b"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*"
    r"|\b1[78]\d{8,11}(\.\d+)?\b"  # moments in seconds or milliseconds
)
NOT_COMPARED = {"accept-encoding", "content-length", "connection"}
"""What asking for usage changes: see `addon/usage_opt_in`."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of one way of running all clients."""

    clients: dict[str, dict[str, Any]]
    requests: list[dict[str, Any]]
    stderr: str
    ledger: list[rows.Row]
    limits: list[rows.Row]
    """What answers stated of limits, each beside its answer's id and billing."""

    def asked_by(self, client: Client) -> list[dict[str, Any]]:
        """The LLM calls of a client that upstream answered."""
        name = name_of(client)
        return [each for each in self.requests if each["client"] == name and "answer" in each]

    def rows_of(self, client: Client) -> list[rows.Row]:
        """What the ledger has of them."""
        prefix = f"{name_of(client)}-"
        found = [row for row in self.ledger if (row["response_id"] or "").startswith(prefix)]
        return [row for row in found if row["response_id"].removeprefix(prefix).isdigit()]

    def refused_of(self, client: Client) -> list[rows.Row]:
        """What a cap refused while it ran."""
        begin, end = self.clients[name_of(client)]["between"]
        return [
            row
            for row in self.ledger
            if row["outcome"] == "refused" and begin <= _seconds(row["opened_at"]) <= end
        ]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


def can_play() -> bool:
    """Whether this machine lets us make namespaces."""
    words = ["unshare", "-rmn", "--kill-child", "true"]
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=20).returncode == 0
    except OSError:
        return False


def play(
    clients: Sequence[Client],
    folder: Path,
    *,
    behind_mitmdump: Sequence[Client] | None = None,
    variants: Sequence[str] = VARIANTS,
) -> dict[str, Played]:
    """Clients in these variants, in namespaces of their own.

    `behind_mitmdump`: those of them that are played in that variant, if not all.
    """
    authority, certificate = make_certificates(folder, HOSTS)
    all_specs = [spec_of(client) for client in clients]
    few_specs = [spec_of(client) for client in behind_mitmdump or clients]
    (folder / "confdir").mkdir()
    # An address for each, so that a warning names the right one; upstream answers at all of them.
    names = [f"127.0.1.{number} {host}\n" for number, host in enumerate(HOSTS, start=1)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    # The machine's own store trusts the authority too: wget reads nothing else.
    store = STORE.read_bytes() if STORE.exists() else b""
    (folder / "store.pem").write_bytes(store + authority.read_bytes())
    played = {}
    for variant in variants:
        # One folder for all: its path is in what clients print and send.
        stage = folder / "stage"
        stage.mkdir()
        (stage / "spec.json").write_text(
            json.dumps(
                {
                    "variant": variant,
                    "clients": few_specs if variant == "mitmdump" else all_specs,
                    "authority": str(authority),
                    "certificate": str(certificate),
                    "confdir": str(folder / "confdir"),
                }
            )
        )
        inner = (
            'mount --bind "$1" /etc/hosts && if [ -e "$4" ]; then mount --bind "$2" "$4"; fi && '
            'exec "$3" -m tests.clients.stage "$5"'
        )
        done = subprocess.run(
            ["unshare", "-rmn", "--kill-child", "sh", "-c", inner, "sh", str(folder / "hosts"),
             str(folder / "store.pem"), sys.executable, str(STORE), str(stage / "spec.json")],
            cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=MARGIN_SECONDS + sum(client.seconds for client in clients),
        )  # fmt: skip
        assert (stage / "result.json").exists(), done.stderr
        result = json.loads((stage / "result.json").read_text())
        played[variant] = Played(
            clients=result["clients"],
            requests=result["requests"],
            stderr=result["stderr"],
            ledger=rows.exchanges(stage / "ledger.db"),
            limits=rows.query(stage / "ledger.db", _LIMITS),
        )
        stage.rename(folder / variant)
    return played


def differences(
    client: Client, direct: Played, led: Played, folder: Path, own: tuple[str, ...] = ()
) -> list[str]:
    """In what a client behaved otherwise than without us, in words; `own` headers do not count."""
    name = name_of(client)
    found = []
    for stream in ("code", "stdout"):
        before = settled(client, direct.clients[name][stream])
        after = settled(client, led.clients[name][stream])
        if before != after:
            found.append(f"{stream}: {before[-300:]!r} became {after[-300:]!r}")
    before_asked, after_asked = direct.asked_by(client), led.asked_by(client)
    if len(before_asked) != len(after_asked):
        return [*found, f"{len(before_asked)} calls became {len(after_asked)}"]
    for one, other in zip(_in_order(before_asked), _in_order(after_asked), strict=True):
        found += _request_differences(client, one, other, own)
    return found


def _in_order(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By what they ask: some clients send two at a time. What we add does not count."""

    def key(request: dict[str, Any]) -> tuple[str, str]:
        body = json.loads(request["body"])
        body.pop("stream_options", None)
        return request["path"], OURS_AND_VOLATILE.sub("#", json.dumps(body))

    return sorted(requests, key=key)


def _request_differences(
    client: Client, before: dict[str, Any], after: dict[str, Any], own: tuple[str, ...]
) -> list[str]:
    found = [
        f"{part} {before[part]!r} became {after[part]!r}"
        for part in ("method", "path", "host")
        if settled(client, before[part]) != settled(client, after[part])
    ]
    heads = [
        [
            (name.lower(), settled(client, value))
            for name, value in each["headers"]
            if name.lower() not in NOT_COMPARED and name.lower() not in own
        ]
        for each in (before, after)
    ]
    if heads[0] != heads[1]:
        found.append(f"headers: only before {set(heads[0]) - set(heads[1])}, "
                     f"only after {set(heads[1]) - set(heads[0])}")  # fmt: skip
    bodies = [json.loads(each["body"]) for each in (before, after)]
    asked = bodies[1].get("stream_options")
    if asked == {"include_usage": True} and "stream_options" not in bodies[0]:
        del bodies[1]["stream_options"]
    texts = [settled(client, json.dumps(body, sort_keys=True)) for body in bodies]
    if texts[0] != texts[1]:
        at = next((n for n, pair in enumerate(zip(*texts, strict=False)) if len(set(pair)) > 1), 0)
        shown = [text[max(at - 40, 0) : at + 80] for text in texts]
        found.append(f"body of {before['path']}: {shown[0]!r} became {shown[1]!r}")
    return found


def settled(client: Client, text: Any) -> str:
    """Without what differs from run to run."""
    found = OURS_AND_VOLATILE.sub("#", str(text))
    for pattern in client.volatile:
        found = re.sub(pattern, "#", found)
    return found


CACHE = Path(
    os.environ.get("TOKENTEE_CLIENTS_CACHE") or platformdirs.user_cache_path("tokentee-clients")
)
INSTALL_SECONDS_MAX = 600
INSTALLED_SECONDS_MAX = 86_400
"""Then the newest release is installed again."""


def spec_of(client: Client) -> dict[str, Any]:
    """How the driver runs it; installed where need be."""
    named = client.shares or client.name
    owner = next((each for each in CLIENTS if each.name == named), client)
    path = []
    if client.node and client.node != "system":
        path.append(str(installed((f"node@{client.node}",), is_node=True) / "node_modules/.bin"))
    command = list(client.arguments)
    if client.is_node:
        has_packages = owner.packages and not owner.packages[0].startswith("node@")
        folder = installed(owner.packages, is_node=True) if has_packages else CACHE
        path.append(str(folder / "node_modules" / ".bin"))
        if client.program:
            # An ES module finds packages from where it lies.
            folder.mkdir(parents=True, exist_ok=True)
            program = folder / client.program
            shutil.copyfile(PROGRAMS / client.program, program)
            command = ["node", str(program), *command]
    elif owner.packages:
        folder = installed(owner.packages, is_node=False)
        path.append(str(folder / "bin"))
        if client.program:
            command = [str(folder / "bin" / "python"), str(PROGRAMS / client.program), *command]
    elif client.program:
        command = [sys.executable, str(PROGRAMS / client.program), *command]
    return {
        "name": name_of(client),
        "command": command,
        "path": ":".join(path),
        "environment": KEYS | client.environment,
        "files": client.files,
        "seconds": client.seconds,
        "keeps_home": client.keeps_home,
    }


def name_of(client: Client) -> str:
    """The client's name as a word: for paths and ids."""
    return "".join(letter if letter.isalnum() else "-" for letter in client.name.lower())


def installed(packages: tuple[str, ...], *, is_node: bool) -> Path:
    """Where the newest release of packages lies; one of them may be `name@version`."""
    key = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    first = packages[0].strip("@").replace("/", "-").split("[")[0]
    folder = CACHE / ("node" if is_node else "python") / f"{first}-{key}"
    done = folder / ".done"
    if done.exists() and time.time() - done.stat().st_mtime < INSTALLED_SECONDS_MAX:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if is_node:
        (folder / "package.json").write_text('{"private": true}')
        _call("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages, at=folder)
    else:
        python = getattr(sys, "_base_executable", sys.executable)
        uv = [python, "-m", "uv"] if not shutil.which("uv") else ["uv"]
        uv = [os.environ["UV"]] if "UV" in os.environ else uv
        _call(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder), at=CACHE)
        interpreter = str(folder / "bin" / "python")
        _call(*uv, "pip", "install", "--quiet", "--python", interpreter, *packages, at=CACHE)
    done.touch()
    return folder


def version_of(package: str, packages: tuple[str, ...], *, is_node: bool) -> str:
    """The version of one of the packages that are installed together; empty if that is not told."""
    folder = installed(packages, is_node=is_node)
    if is_node:
        path = folder / "node_modules" / package / "package.json"
        return str(json.loads(path.read_text())["version"]) if path.exists() else ""
    pattern = f"lib/python*/site-packages/{package.replace('-', '_')}-*.dist-info"
    found = next(folder.glob(pattern), None)
    return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else ""


def _call(*words: str, at: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(
        words,
        cwd=at,
        check=True,
        timeout=INSTALL_SECONDS_MAX,
        env=environment,
        stdout=subprocess.DEVNULL,  # npm counts packages there
    )
