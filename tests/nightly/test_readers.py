"""Damaged files of every kind: no reader raises anything but one line that refuses the file.

A reader may refuse a file with one line (`LedgerError`, `RecordingError`) and must give an end of
one line to each part that it cannot read. Anything else that it raises is a bug.

pytest -m "nightly or not nightly" tests/nightly/test_readers.py
TOKENTEE_MUTATIONS=100000 TOKENTEE_SEED=7 pytest -m nightly tests/nightly/test_readers.py
"""

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import pytest

from addon.metering.opening import RunRules
from addon.parts.agent_logs import call, files, reader
from addon.parts.agent_logs.agents import AGENTS
from addon.parts.agent_logs.files import SkippedCounts
from addon.recordings.files import read as read_recording
from addon.recordings.formats.recorded import Recorded, RecordingError, Unreadable, split_url
from addon.recordings.metered import meter
from addon.run.call import config_file
from ledger.model.errors import LedgerError
from ledger.parts.budgets import budgets_file
from ledger.parts.reconcile import statement_files as statements
from ledger.pricing import overrides
from ledger.pricing.litellm import PROVIDERS, LiteLLM
from ledger.settings import names_file
from tests.addon.parts.agent_logs import logs
from tests.addon.recordings import recorded_files
from tests.addon.run.call import test_settings
from tests.ledger.parts.budgets import test_budgets
from tests.ledger.parts.reconcile import test_cloud_bills, test_statement_files
from tests.ledger.settings import test_names
from tests.nightly.mutations import TOKENS, Check, mutated, try_many

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "5000"))
"""Of each kind of file."""
WORDS = (
    *TOKENS,
    b"1e999999999", b"-0.0", b"NaN", b"Infinity", b"9999-12-31", b"0001-01-01T00:00:00Z", b"[[",
    b"]]", b"=", b"'''", b'"""', b"\\ud800", b"\\u0000", b"true", b"<", b"%", b"#", b";", b"\t",
    b"1970-01-01", b"99:99", b"://", b"@", b"{}", b"[]", b"12:", b"9" * 400,
)  # fmt: skip
RULES = RunRules(node="n", secret=b"s")
NOW = datetime(2026, 11, 20, tzinfo=UTC)
REFUSAL_LENGTH_MAX = 2_000
"""Of the line that refuses a file or a part of it."""


def check_refusal(text: str) -> None:
    assert "Traceback" not in text
    assert len(text) <= REFUSAL_LENGTH_MAX, text
    assert text.isprintable() or "\n" in text, text


def recording(path: Path) -> None:
    """Items of a recording, each of which can be metered, named and told apart."""
    for item in read_recording(path, url=None):
        if isinstance(item, Unreadable):
            assert "\n" not in item.why
            check_refusal(item.why)
        elif isinstance(item, Recorded):
            assert item.opened_at.tzinfo is not None
            assert 1970 <= item.opened_at.year <= 9999
            meter(item, RULES)


def statement(path: Path) -> None:
    read = statements.load(str(path), provider=None)
    assert all(isinstance(figure, int) for line in read.lines for figure in line.figures.values())


def prices(path: Path) -> None:
    _, problems = overrides.check(str(path))
    for problem in problems:
        check_refusal(problem)
    with suppress(LedgerError):
        overrides.load(str(path))


def litellm(path: Path) -> None:
    lists = LiteLLM.load(path)
    for name in list(lists.models)[:50]:
        for list_id in (*PROVIDERS, "x"):
            for tier in (None, "flex", "priority"):
                lists.rates(list_id, name, tier)
                lists.rates(list_id, name.rpartition("/")[2], tier)


def names(path: Path) -> None:
    _, problems = names_file.check(path)
    for problem in problems:
        check_refusal(str(problem))


def budgets(path: Path) -> None:
    budgets_file.load(str(path))


def config(path: Path) -> None:
    config_file.load(path)


def session_log(path: Path) -> None:
    files.agent_of(path)
    for agent in AGENTS.values():
        for found in reader.calls_of(agent, files.read(agent, path, SkippedCounts()), path):
            call.booked(found, now=NOW, capture=path.name, tags={})


def url(path: Path) -> None:
    with suppress(RecordingError):
        origin, target = split_url(path.read_bytes().decode("utf-8", "surrogateescape"))
        assert target.startswith("/")
        assert 0 < origin.port < 65_536


type Reader = Callable[[Path], None]

READERS: dict[str, tuple[Reader, str]] = {
    "captures": (recording, ".jsonl"),
    "flows": (recording, ".mitm"),
    "har": (recording, ".har"),
    "lines": (recording, ".jsonl"),
    "statements": (statement, ".txt"),
    "prices": (prices, ".toml"),
    "litellm": (litellm, ".json"),
    "names": (names, ".toml"),
    "budgets": (budgets, ".toml"),
    "config": (config, ".toml"),
    "session logs": (session_log, ".jsonl"),
    "session documents": (session_log, ".json"),
    "urls": (url, ".txt"),
}
"""What is read, and the ending by which a file of the kind is known."""


def check_reader(kind: str, data: bytes, folder: Path) -> None:
    """Let a reader read a file with these bytes."""
    reader, ending = READERS[kind]
    path = folder / f"file{ending}"
    path.write_bytes(data)
    try:
        reader(path)
    except (LedgerError, RecordingError) as refusal:
        check_refusal(str(refusal))


PRICES = b"""
[[price]]
provider = "openai"
model = "gpt-5*"
host = "llm.example.com"
service_tier = "flex"
from = 2026-11-01
until = 2026-12-01T00:00:00Z
usd_per_mtok = { uncached_input = 1.25, output = 10, cache_read = 0.125 }
usd_each = { web_searches = 0.01 }
[[price.above]]
input_tokens = 272_000
usd_per_mtok = { output = 20 }

[[gateway]]
host = "llm.example.com"
prices = "openai"
models = { "x" = "gpt-5" }
"""
LITELLM = json.dumps(
    {
        "sample_spec": {"input_cost_per_token": 0},
        "gpt-5": {
            "litellm_provider": "openai",
            "input_cost_per_token": 1.25e-06,
            "output_cost_per_token": 1e-05,
            "cache_read_input_token_cost": 1.25e-07,
            "input_cost_per_token_flex": 6e-07,
            "input_cost_per_token_above_200k_tokens": 2.5e-06,
        },
        "anthropic/claude": {"litellm_provider": "anthropic", "input_cost_per_token": "3e-06"},
    }
).encode()
URLS = (
    b"https://api.openai.com/v1/chat/completions?key=x#y",
    b"wss://user:p@[2001:db8::1]:443/v1/realtime",
    b"<API_BASE>/chat",
    b"http://h:99999/",
    b"https://xn--bcher-kva.example/%7e?",
)


@cache
def examples() -> dict[str, tuple[bytes, ...]]:
    """What each reader reads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "captures": (recorded_files.as_captures(folder).read_bytes(),),
            "flows": (recorded_files.as_flows(folder).read_bytes(),),
            "har": (
                recorded_files.as_browser_har(folder, is_base64=True).read_bytes(),
                recorded_files.as_browser_har(folder, is_base64=False).read_bytes(),
            ),
            "lines": (recorded_files.as_lines(folder).read_bytes(),),
            "statements": _statements(),
            "prices": (PRICES,),
            "litellm": (LITELLM,),
            "names": (test_names.FILE.encode(),),
            "budgets": (test_budgets.FILE.encode(),),
            "config": (test_settings.WHOLE.encode(),),
            "session logs": (
                _lines([logs.claude(), logs.claude("msg_2")]),
                _lines(logs.codex_lines()),
            ),
            "session documents": (json.dumps(logs.gemini()).encode(),),
            "urls": URLS,
        }


def _lines(values: Iterable[object]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _statements() -> tuple[bytes, ...]:
    costs = {"currency": "USD", "amount": "123.45", "model": None, "cost_type": "web_search"}
    row = {
        "service": {"description": "Vertex AI"},
        "usage_start_time": "2026-11-02 10:00:00 UTC",
        "cost": 0.25,
        "currency": "USD",
        "project": {"id": "p-1"},
        "sku": {"description": "x"},
    }
    texts = [
        test_statement_files.page(test_statement_files.openai(test_statement_files.OPENAI_USAGE)),
        test_statement_files.page(
            test_statement_files.openai(test_statement_files.costs(0.06, "gpt-5, input"))
        ),
        test_statement_files.page(
            test_statement_files.anthropic(test_statement_files.ANTHROPIC_USAGE)
        ),
        test_statement_files.page(test_statement_files.anthropic(costs)),
        json.dumps({"data": [test_statement_files.OPENROUTER_ACTIVITY]}),
        json.dumps(row),
        *("\n".join(map(str, each.values[:2])) for each in test_statement_files.CSV),
        *(f"{test_statement_files.CUR}{row}\n" for row, _ in test_cloud_bills.BEDROCK),
        *(f"{header}\n{row}\n" for header, row in test_cloud_bills.AZURE),
    ]
    return tuple(text.encode() for text in texts)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_examples_are_read(kind: str, tmp_path: Path) -> None:
    for example in examples()[kind]:
        check_reader(kind, example, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("kind", sorted(READERS))
def test_no_damaged_file_raises(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(rng: random.Random) -> tuple[bytes, Check]:
        data = mutated(rng, examples()[kind], WORDS)
        return data, partial(check_reader, kind, data, tmp_path)

    said = try_many(kind, MUTATIONS, make)
    with capsys.disabled():
        print(f"\n{said}")
