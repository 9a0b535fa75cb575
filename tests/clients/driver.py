"""Runs clients one after the other, each in an empty home; the command of `tokentee run`.

Needs nothing but the standard library. What each client printed goes into FILE.done as JSON.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

MARKS = ("127.0.0.77", 8077)


def mark(name: str) -> None:
    """Tell upstream whose turn it is, past every proxy."""
    with socket.create_connection(MARKS, 10) as connection:
        connection.sendall(
            f"GET /mark/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        while connection.recv(4096):
            pass


def main(path: str) -> None:
    done = {}
    home = Path(os.environ["HOME"])
    for client in json.loads(Path(path).read_text()):
        shutil.rmtree(home, ignore_errors=True)
        (home / "work").mkdir(parents=True)
        for name, text in client["files"].items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        environment = {**os.environ, **client["environment"]}
        environment.pop("PYTHONPATH", None)
        if client["path"]:
            environment["PATH"] = client["path"] + ":" + environment["PATH"]
        mark(client["name"])
        began_at, began = time.time(), time.monotonic()
        try:
            ran = subprocess.run(
                client["command"], env=environment, cwd=home / "work", stdin=subprocess.DEVNULL,
                capture_output=True, timeout=client["seconds"], check=False,
            )  # fmt: skip
            code: int | str
            code, out, err = ran.returncode, ran.stdout, ran.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = "timeout", late.stdout or b"", late.stderr or b""
        except OSError as error:
            code, out, err = str(error), b"", b""
        if client["keeps_home"]:
            kept = home.with_name("homes") / client["name"]
            shutil.copytree(home, kept, symlinks=True, ignore_dangling_symlinks=True)
        done[client["name"]] = {
            "code": code,
            "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace"),
            "seconds": round(time.monotonic() - began, 1),
            "between": [began_at, time.time()],
        }
    mark("")
    Path(path + ".done").write_text(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1])
