"""Real SDKs at the hosts that they call by default: `python -m tests.clients.default_hosts SPEC.json`.

In a namespace of its own (as in `stage.py`) these names lead to a fake upstream on port 443, which
speaks HTTP/2, HTTP/1.1 and gRPC. So each SDK is run as its user runs it, direct and under
`tokentee run --`; and where a variable leads it to a reverse proxy, by that, without TLS.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.model.provider_table import TABLE
from tests.clients import playing
from tests.clients.default_hosts_answers import BOTH_WAYS, script
from tests.clients.matrix import PROGRAMS
from tests.clients.stage import ROOT, bring_up_loopback, certificates
from tests.proxy import rows
from tests.proxy.certificates import make_certificates, server_context
from tests.proxy.mitmdump import Mitmdump
from tests.proxy.upstream import Upstream

SECONDS_MAX = 120
"""Of one program."""


@dataclass(frozen=True, kw_only=True)
class Sdk:
    """One row of the table."""

    package: str
    hosts: tuple[str, ...]
    """That its program calls."""
    wire: str
    calls: int = 2
    """Requests that are LLM calls."""
    without_figures: int = 0
    """Of them, those whose answers state none."""
    goes_past: bool = False
    """It reads no proxy variable."""

    @property
    def is_node(self) -> bool:
        return self.package.startswith("@")


_BEDROCK = ("bedrock-runtime.us-east-1.amazonaws.com",)
SDKS = (
    Sdk(package="xai-sdk", hosts=("api.x.ai",), wire="gRPC"),
    Sdk(package="google-cloud-aiplatform", hosts=("aiplatform.googleapis.com",), wire="gRPC"),
    Sdk(
        package="yandex-ai-studio-sdk",
        hosts=("llm.api.cloud.yandex.net", "api.cloud.yandex.net"),
        wire="gRPC",
        calls=1,
    ),
    Sdk(package="boto3", hosts=_BEDROCK, wire="HTTP/1.1"),
    Sdk(package="aws-sdk-bedrock-runtime", hosts=_BEDROCK, wire="HTTP/1.1", goes_past=True),
    Sdk(package="@aws-sdk/client-bedrock-runtime", hosts=_BEDROCK, wire="HTTP/2", calls=3),
    Sdk(
        package="replicate",
        hosts=("api.replicate.com", "stream.replicate.com"),
        wire="HTTP/1.1",
        without_figures=1,  # a stream has text alone; its host is in the answer, so it goes past
        goes_past=True,
    ),
    Sdk(package="dashscope", hosts=("dashscope.aliyuncs.com",), wire="HTTP/1.1"),
    Sdk(package="sarvamai", hosts=("api.sarvam.ai",), wire="HTTP/1.1"),
    Sdk(package="voyageai", hosts=("api.voyageai.com", "ai.mongodb.com"), wire="HTTP/1.1"),
    Sdk(package="mistralai", hosts=("api.mistral.ai",), wire="HTTP/1.1"),
    Sdk(package="cohere", hosts=("api.cohere.com",), wire="HTTP/1.1"),
)
HOSTS = tuple(dict.fromkeys(host for sdk in SDKS for host in sdk.hosts))
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAMADEUP0123456789",
    "AWS_SECRET_ACCESS_KEY": "made-up-0123456789abcdef0123456789abcdef",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "REPLICATE_API_TOKEN": "r8_made-up-0123456789abcdef",
    "DASHSCOPE_API_KEY": "sk-made-up-0123456789abcdef",
}


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One program, run one way."""

    code: int
    stdout: str
    stderr: str
    ledger: list[rows.Row]


def play(sdk: Sdk, folder: Path) -> dict[str, Ran]:
    """An SDK in each way: `direct`, `run`, and `reverse` where a variable leads it there."""
    authority, certificate = make_certificates(folder, HOSTS)
    names = [f"127.0.2.{number} {host}\n" for number, host in enumerate(HOSTS, start=1)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    spec = {
        "command": command_of(sdk),
        "host": sdk.hosts[0],
        "authority": str(authority),
        "certificate": str(certificate),
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    inner = 'mount --bind "$1" /etc/hosts && exec "$2" -m tests.clients.default_hosts "$3"'
    done = subprocess.run(
        ["unshare", "-rmn", "--kill-child", "sh", "-c", inner, "sh", str(folder / "hosts"),
         sys.executable, str(folder / "spec.json")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=4 * SECONDS_MAX,
    )  # fmt: skip
    assert (folder / "result.json").exists(), done.stderr
    found = json.loads((folder / "result.json").read_text())
    return {
        way: Ran(**ran, ledger=rows.exchanges(folder / f"{way}.db")) for way, ran in found.items()
    }


def command_of(sdk: Sdk) -> list[str]:
    """How its program is started; installed where need be."""
    folder = playing.installed((sdk.package,), is_node=sdk.is_node)
    if sdk.is_node:
        program = folder / "default_hosts_node.mjs"  # it finds packages from where it lies
        program.write_bytes((PROGRAMS / program.name).read_bytes())
        return ["node", str(program)]
    program = PROGRAMS / "default_hosts_python.py"
    return [str(folder / "bin" / "python"), str(program), sdk.package]


def main(spec_path: str) -> None:
    """Inside the namespaces: run what the specification names, and write `result.json` beside it."""
    spec = json.loads(Path(spec_path).read_text())
    folder = Path(spec_path).parent
    bring_up_loopback()
    (folder / "home").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "HOME": str(folder / "home"),
        "AWS_CA_BUNDLE": spec["authority"],
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": spec["authority"],
        **certificates(spec["authority"]),
        **KEYS,
    }
    command = spec["command"]
    found = {"direct": _run(command, environment, spec)}
    # The program gets no PYTHONPATH: it is ours.
    led = [sys.executable, "-c", "from addon.cli import main; main()", "run"]
    led += ["--set", f"confdir={folder}", "--set", f"ledger_url={folder / 'run.db'}"]
    led += ["--", "env", "-u", "PYTHONPATH", *command]
    found["run"] = _run(led, environment | {"PYTHONPATH": str(ROOT)}, spec)
    options = {
        "ssl_verify_upstream_trusted_ca": spec["authority"],
        "ledger_url": str(folder / "reverse.db"),
    }
    if TABLE.base_url_setting(spec["host"], ""):
        upstream = f"https://{spec['host']}"
        with Mitmdump(
            folder, upstreams=[upstream], options=options, tool="tokentee", has_own_interpreter=True
        ) as proxy:
            host, port = proxy.address()
            setting = TABLE.base_url_setting(spec["host"], f"http://{host}:{port}") or ""
            variable, _, url = setting.partition("=")
            found["reverse"] = _run(command, environment | {variable: url}, spec)
    (folder / "result.json").write_text(json.dumps(found))


def _run(command: list[str], environment: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    """A command beside an upstream that begins to count anew."""
    tls = server_context(Path(spec["certificate"]), http2=True)
    with Upstream(script(), tls=tls, address=("0.0.0.0", 443), answered_early=(BOTH_WAYS,)):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False,
            timeout=SECONDS_MAX, cwd=Path(spec["authority"]).parent,
        )  # fmt: skip
    return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def line(sdk: Sdk, played: dict[str, Ran]) -> str:
    """A row of the table in docs/clients.md."""
    direct, led = played["direct"], played["run"]

    def shown(ran: Ran) -> str:
        with_figures = sum(row["input_tokens"] is not None for row in ran.ledger)
        same = "" if ran.stdout == direct.stdout else ", **not the same**"
        return f"{with_figures} of {sdk.calls}{same}"

    setting = TABLE.base_url_setting(sdk.hosts[0], "") or ""
    by_setting = f"{shown(played['reverse'])}: `{setting.partition('=')[0]}`" if setting else "-"
    version = playing.version_of(sdk.package, (sdk.package,), is_node=sdk.is_node)
    past = "went past, named at the end" if "went past the recorder" in led.stderr else "no"
    return (
        f"| {sdk.package} {version} | {', '.join(f'`{host}`' for host in sdk.hosts)} | {sdk.wire} "
        f"| {shown(led)} | {past} | {by_setting} |\n"
    )


HEAD = """\
| SDK | default hosts | wire | `tokentee run --` | past it | `run --mode reverse:`, by base URL |
|---|---|---|---|---|---|
"""


if __name__ == "__main__":
    main(sys.argv[1])
