"""Runs clients in a network of their own: `python -m tests.clients.stage SPEC.json`.

In the namespaces that `unshare` makes, the names of the providers lead to the fake upstream on
loopback, port 443 is ours, and nothing else can be reached. So a client is run as its user would
run it, without one option for the test, in three ways:

    direct     without us
    run        `tokentee run -- driver`
    mitmdump   `mitmdump -s addon/tee.py`, and the client led to it by hand
"""

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.clients.upstream import serving
from tests.proxy.mitmdump import Mitmdump

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("driver.py")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main(spec_path: str) -> None:
    """Run what the specification names, and write `result.json` beside it."""
    spec = json.loads(Path(spec_path).read_text())
    folder = Path(spec_path).parent
    bring_up_loopback()
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        **certificates(spec["authority"]),
    }
    (folder / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, str(DRIVER), str(folder / "clients.json")]
    (folder / "clients.json").write_text(json.dumps(spec["clients"]))
    with serving(Path(spec["certificate"])) as kept:
        play = {"direct": _direct, "run": _run, "capped": _run, "mitmdump": _mitmdump}[
            spec["variant"]
        ]
        code, stderr = play(command, environment, folder, spec)
    result = json.loads((folder / "clients.json.done").read_text())
    (folder / "result.json").write_text(
        json.dumps({"clients": result, "requests": kept.requests, "code": code, "stderr": stderr})
    )


def certificates(authority: str) -> dict[str, str]:
    """As a company sets them on its machines."""
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
             "GIT_SSL_CAINFO")  # fmt: skip
    return dict.fromkeys(names, authority)


def _direct(
    command: list[str], environment: dict[str, str], folder: Path, spec: dict[str, Any]
) -> tuple[int, str]:
    del folder, spec
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def _run(
    command: list[str], environment: dict[str, str], folder: Path, spec: dict[str, Any]
) -> tuple[int, str]:
    ours = [sys.executable, "-c", "from addon.cli import main; main()", "run"]
    ours += ["--set", f"confdir={spec['confdir']}", "--set", f"ledger_url={folder / 'ledger.db'}"]
    if spec["variant"] == "capped":
        ours += ["--max-tokens", "10"]
    environment = environment | {"PYTHONPATH": str(ROOT)}
    # The driver takes PYTHONPATH out again: it is ours, not the clients'.
    done = subprocess.run(
        [*ours, "--", *command], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def _mitmdump(
    command: list[str], environment: dict[str, str], folder: Path, spec: dict[str, Any]
) -> tuple[int, str]:
    proxy = Mitmdump(
        folder,
        upstreams=["regular"],
        options={
            "confdir": spec["confdir"],
            "ssl_verify_upstream_trusted_ca": spec["authority"],
        },
        environment={**environment, "PYTHONPATH": str(ROOT)},
        has_own_interpreter=True,
    )
    with proxy:
        bundle = folder / "bundle.pem"
        own = Path(spec["confdir"]) / "mitmproxy-ca-cert.pem"
        bundle.write_bytes(Path(spec["authority"]).read_bytes() + own.read_bytes())
        (folder / "wgetrc").write_text(f"ca_certificate = {bundle}\n")
        led = environment | certificates(str(bundle)) | {"NODE_USE_ENV_PROXY": "1"}
        led["WGETRC"] = str(folder / "wgetrc")
        host, port = proxy.address()
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
            led[name] = f"http://{host}:{port}"
        return _direct(command, led, folder, spec)


def bring_up_loopback() -> None:
    """A new network has its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sh14x", answer)[1] | _IFF_UP
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


if __name__ == "__main__":
    shutil.rmtree(Path(sys.argv[1]).parent / "home", ignore_errors=True)
    main(sys.argv[1])
