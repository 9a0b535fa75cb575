"""CPU seconds of `tokentee import` over made-up logs: a first time, again, and with one grown log.

    uv run python -m tests.bench --parts import

The logs are of Claude Code (two lines an answer) and Codex, with sizes as people have them. Where
Node.js is installed, ccusage reads the same logs in turn, at the version that the figures are stated
against.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.bench_proxy import environment, spread
from tests.bench.bench_start import children_cpu_seconds, tokentee

CCUSAGE = "ccusage@18.0.11"
ANSWERS = 45_000
ANSWERS_OF_SESSION = 450
CODEX_SESSIONS, CODEX_ANSWERS = 10, 200
BEGIN = datetime(2026, 10, 1, 8, tzinfo=UTC)
MODELS = ("claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001", "claude-opus-4-5-20251101")
SEED = 51

type Seconds = dict[str, list[float]]
"""By run, CPU seconds of each round."""


def write_logs(home: Path, answers: int = ANSWERS) -> int:
    """Write the logs below a home; their bytes."""
    dice, written = random.Random(SEED), 0
    for number in range(answers // ANSWERS_OF_SESSION):
        session = f"{dice.getrandbits(128):032x}"
        path = home / f".claude/projects/-w-project-{number % 12}/{session}.jsonl"
        written += _write(path, _claude_code(session, number, dice))
    for number in range(CODEX_SESSIONS):
        path = home / f".codex/sessions/2026/10/{number + 1:02}/rollout-{number}.jsonl"
        written += _write(path, _codex(f"{dice.getrandbits(128):032x}", number, dice))
    return written


def _write(path: Path, lines: Iterator[dict[str, Any]]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )


def _claude_code(session: str, number: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    """A prompt or a tool's result, then an answer of two blocks, each in a line of its own."""
    at = BEGIN + timedelta(hours=6 * number)
    context = 12_000
    common = {
        "isSidechain": False,
        "userType": "external",
        "cwd": f"/home/ada/work/project-{number % 12}",
        "sessionId": session,
        "version": "2.0.31",
        "gitBranch": "main",
    }
    for _ in range(ANSWERS_OF_SESSION):
        at += timedelta(seconds=dice.randint(5, 40))
        text = "lorem ipsum dolor " * dice.randint(20, 170)
        prompt = {"role": "user", "content": [{"type": "tool_result", "content": text}]}
        yield common | {"type": "user", "timestamp": _text(at), "message": prompt}
        name, request = f"msg_01{dice.getrandbits(90):x}", f"req_01{dice.getrandbits(90):x}"
        written, output = dice.randint(50, 4_000), dice.randint(20, 1_500)
        blocks = (
            {"type": "text", "text": "consectetur adipiscing " * dice.randint(2, 30)},
            {
                "type": "tool_use",
                "id": f"toolu_{request}",
                "name": "Bash",
                "input": {"command": text[:300]},
            },
        )
        for place, block in enumerate(blocks):
            usage = {
                "input_tokens": 4,
                "cache_creation_input_tokens": written,
                "cache_read_input_tokens": context,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": written,
                    "ephemeral_1h_input_tokens": 0,
                },
                "output_tokens": output if place else 2,
                "service_tier": "standard",
            }
            message = {
                "model": MODELS[number % len(MODELS)],
                "id": name,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": "tool_use" if place else None,
                "stop_sequence": None,
                "usage": usage,
            }
            yield common | {
                "type": "assistant",
                "timestamp": _text(at + timedelta(seconds=2 + place)),
                "message": message,
                "requestId": request,
                "uuid": f"{dice.getrandbits(128):032x}",
            }
        context = context + written if context < 150_000 else 12_000


def _codex(session: str, number: int, dice: random.Random) -> Iterator[dict[str, Any]]:
    at = BEGIN + timedelta(days=number)
    meta = {"id": session, "cwd": "/home/ada/work/search", "originator": "codex_cli_rs"}
    yield {"timestamp": _text(at), "type": "session_meta", "payload": meta}
    yield {"timestamp": _text(at), "type": "turn_context", "payload": {"model": "gpt-5-codex"}}
    total = dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens"), 0)
    for _ in range(CODEX_ANSWERS):
        at += timedelta(seconds=dice.randint(5, 40))
        item = {"type": "function_call", "name": "shell", "arguments": "ls " * dice.randint(9, 900)}
        yield {"timestamp": _text(at), "type": "response_item", "payload": item}
        cached = dice.randint(0, 90_000)
        usage = dict(zip(total, (cached + 900, cached, dice.randint(9, 2_000)), strict=True))
        total = {name: total[name] + usage[name] for name in total}
        info = {"last_token_usage": usage, "total_token_usage": total}
        count = {"type": "token_count", "info": info, "rate_limits": {"plan_type": "pro"}}
        yield {"timestamp": _text(at), "type": "event_msg", "payload": count}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def measure(*, rounds: int = 3) -> Seconds:
    """CPU seconds of each run; the table is printed."""
    found: Seconds = {}
    with tempfile.TemporaryDirectory(prefix="tokentee-bench-") as temporary:
        home = Path(temporary)
        size = write_logs(home)
        grown = min(home.glob(".claude/projects/*/*.jsonl"))
        ccusage = _ccusage(home)
        variables = {"HOME": str(home), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
        for number in range(rounds):
            for path in home.glob("small.sqlite3*"):
                path.unlink() if path.is_file() else shutil.rmtree(path)
            for name in ("first", "again", "one log has grown"):
                if name == "one log has grown":
                    with grown.open("a") as file:
                        lines = _claude_code(grown.stem, 900 + number, random.Random(number))
                        file.writelines(json.dumps(next(lines)) + "\n" for _ in range(30))
                before = children_cpu_seconds()
                tokentee(home, "import", variables=variables)
                found.setdefault(f"import, {name}", []).append(children_cpu_seconds() - before)
            if ccusage is not None:
                before = children_cpu_seconds()
                command = ["node", str(ccusage), "daily", "--offline", "--json"]
                subprocess.run(
                    command,
                    cwd=home,
                    env=environment() | {"HOME": str(home)},
                    stdout=subprocess.DEVNULL,
                    check=True,
                )
                found.setdefault(CCUSAGE, []).append(children_cpu_seconds() - before)
    show(found, size)
    return found


def _ccusage(home: Path) -> Path | None:
    """Its script, installed below the home; None: it cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    command = ["npm", "install", "--silent", "--prefix", str(home / "node"), CCUSAGE]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, check=False)
    script = home / "node/node_modules/.bin/ccusage"
    return script if done.returncode == 0 and script.is_file() else None


def show(found: Seconds, size: int) -> None:
    """Print the table."""
    table = Table("run", "CPU s", "by ccusage's", title=f"import of {size / 1e6:.0f} MB of logs")
    others = found.get(CCUSAGE)
    for name, seconds in found.items():
        by = [each / statistics.median(others) for each in seconds] if others else []
        table.add_row(name, spread(seconds), spread(by) if by else "left out: not installed")
    Console(width=120).print(table)
