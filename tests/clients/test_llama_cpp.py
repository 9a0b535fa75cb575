"""A real llama.cpp, recorded by a real mitmdump: the ledger has what the server's own metrics count,
and its answers are as they are without us."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import playing
from tests.clients.matrix import PROGRAMS
from tests.proxy import rows
from tests.proxy.mitmdump import Mitmdump

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
SAME = {"temperature": 0, "seed": 7, "cache_prompt": False}
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, **SAME}
ASKS = {"stream_options": {"include_usage": True}}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, HI),
    (CHAT, HI | {"stream": True}),
    (CHAT, HI | {"stream": True} | ASKS),
    (TEXT, {"prompt": "Once upon", "max_tokens": 6, **SAME}),
    (TEXT, {"prompt": "Once upon", "max_tokens": 6, "stream": True, **SAME}),
    (TEXT, {"prompt": ["Once", "Twice upon"], "max_tokens": 6, "stream": True, **SAME}),
    (NATIVE, {"prompt": "Once upon", "n_predict": 6, **SAME}),
    (NATIVE, {"prompt": ["Once", "Twice upon"], "n_predict": 6, **SAME}),
    (NATIVE, {"prompt": "Once upon", "n_predict": 6, "stream": True, **SAME}),
]
VOLATILE = re.compile(rb'"(?:id|created|\w+_ms|\w+_per_second)": ?(?:"[^"]*"|[\d.]+)')


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    python = str(playing.installed(("xllamacpp", "gguf"), is_node=False) / "bin" / "python")
    words = [python, str(PROGRAMS / "llama_cpp.py"), str(tmp_path)]
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), (tmp_path / "server.log").read_text()[-2_000:]
        yield address
        process.kill()


def answer(address: str, path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(
        address + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as got:
        return VOLATILE.sub(b"#", got.read())


def counted(address: str) -> tuple[int, int]:
    """Tokens of prompts that were evaluated, and predicted ones, by the server's own metrics."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as got:
        text = got.read().decode()
    names = ("prompt_tokens_total", "tokens_predicted_total")
    found = [re.search(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE) for name in names]
    assert all(found), text
    return tuple(int(float(each[1])) for each in found if each)  # type: ignore[return-value]


def test_the_ledger_has_what_the_server_counts(server: str, tmp_path: Path):
    direct = [answer(server, path, body) for path, body in REQUESTS]
    before = counted(server)
    with Mitmdump(tmp_path / "proxy", upstreams=[server]) as proxy:
        host, port = proxy.address()
        for _ in range(2):  # with lessons fresh and learned
            through = [answer(f"http://{host}:{port}", path, body) for path, body in REQUESTS]
            assert through == direct
    after = counted(server)
    recorded = rows.exchanges(proxy.ledger)
    assert len(recorded) == 2 * len(REQUESTS)
    assert {row["usage_source"] for row in recorded} == {"reported"}
    uncached = [row["input_tokens"] - (row["cache_read_tokens"] or 0) for row in recorded]
    sums = sum(uncached), sum(row["output_tokens"] for row in recorded)
    assert sums == (after[0] - before[0], after[1] - before[1])


def test_what_it_states_of_one_of_several_results_is_a_lower_bound(server: str, tmp_path: Path):
    body = {"prompt": ["Once", "Twice upon"], "max_tokens": 6, **SAME}
    with Mitmdump(tmp_path / "proxy", upstreams=[server]) as proxy:
        host, port = proxy.address()
        answer(f"http://{host}:{port}", TEXT, body)
    (row,) = rows.exchanges(proxy.ledger)
    assert (row["input_tokens"], row["output_tokens"]) == (6, 6)
    assert "lower_bound" in row["usage_json"]
