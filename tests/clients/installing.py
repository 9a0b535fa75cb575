"""Installs each client in an environment of its own, once, in a cache outside the repository."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import platformdirs

from tests.clients.matrix import CLIENTS, KEYS, PROGRAMS, Client

CACHE = Path(
    os.environ.get("TOKENTEE_CLIENTS_CACHE") or platformdirs.user_cache_path("tokentee-clients")
)
INSTALL_SECONDS_MAX = 600


def spec_of(client: Client) -> dict[str, Any]:
    """How the driver runs it; installed where need be."""
    owner = next(each for each in CLIENTS if each.name == (client.shares or client.name))
    path = []
    if client.node and client.node != "system":
        path.append(str(_installed((f"node@{client.node}",), is_node=True) / "node_modules/.bin"))
    command = list(client.arguments)
    if client.is_node:
        has_packages = owner.packages and not owner.packages[0].startswith("node@")
        folder = _installed(owner.packages, is_node=True) if has_packages else CACHE
        path.append(str(folder / "node_modules" / ".bin"))
        if client.program:
            # An ES module finds packages from where it lies.
            folder.mkdir(parents=True, exist_ok=True)
            program = folder / client.program
            shutil.copyfile(PROGRAMS / client.program, program)
            command = ["node", str(program), *command]
    elif owner.packages:
        folder = _installed(owner.packages, is_node=False)
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
    }


def name_of(client: Client) -> str:
    """The client's name as a word: for paths and ids."""
    return "".join(letter if letter.isalnum() else "-" for letter in client.name.lower())


def _installed(packages: tuple[str, ...], *, is_node: bool) -> Path:
    key = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    first = packages[0].strip("@").replace("/", "-").split("[")[0]
    folder = CACHE / ("node" if is_node else "python") / f"{first}-{key}"
    if (folder / ".done").exists():
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
    (folder / ".done").touch()
    return folder


def _call(*words: str, at: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run(words, cwd=at, check=True, timeout=INSTALL_SECONDS_MAX, env=environment)
