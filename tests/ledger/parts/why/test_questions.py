"""The commands that say why requests cost what they cost, on a ledger."""

import json
from typing import Any

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from ledger.model.segments import pack
from ledger.parts.sync import merging
from ledger.parts.why import command as why
from ledger.pricing.charges import charge
from ledger.pricing.prices import PriceBook
from ledger.store import db
from tests.ledger.parts.why.sessions import PROVIDERS, Provider, Session, changed
from tests.ledger.written import put, reading, row, settled

ROW = [
    *("reason", "how", "segment", "kind", "name", "session", "requests", "tokens"),
    *("list_value_usd", "first_at", "last_at", "example"),
]
ORIGINS = {
    "openai": ("https://api.openai.com:443", "openai", "/v1/chat/completions"),
    "anthropic": ("https://api.anthropic.com:443", "anthropic", "/v1/messages"),
    "anthropic_hour": ("https://api.anthropic.com:443", "anthropic", "/v1/messages"),
}
LOST_USD_PER_MTOK = {"gpt-5": 1.25 - 0.125, "claude-sonnet-4-5": 3.75 - 0.3, "claude-opus-4-5": 9.5}
"""What a token costs more that is not read from the cache: the input's price, or that of a write
for five minutes or an hour."""


def recorded(url: str, name: str, turns: int = 5) -> None:
    """A ledger with a session in which a tool changes, and a request without segments."""
    provider: Provider = PROVIDERS[name]
    session = Session(1, provider, turns=turns)
    origin, vendor, path = ORIGINS[name]
    book = PriceBook()
    with db.disposing(db.ensure(url)) as engine:
        for number in range(turns):
            if number == 2:
                changed(session, 4)
            asked = session.ask()
            parts = pack(asked.segments.parts) if number < turns - 1 else None
            exchange = replace(
                settled(f"e{number}", at=asked.opened_at),
                origin=origin,
                provider=vendor,
                path=path,
                dialect=provider.dialect,
                request_model=provider.model,
                response_model=provider.model,
                session_id="s",
                key_fingerprint=f"key {number}",
                account="the organization of all keys",
                segments=parts,
            )
            read = reading(exchange)
            usage = replace(
                read.usage,
                input_tokens=asked.input_tokens,
                cache_read_tokens=asked.read_tokens,
                cache_write_tokens=asked.write_tokens,
                cache_write_1h_tokens=asked.write_tokens if provider.breakpoint == 2 else None,
                tool_units={"web_searches": number},
            )
            read = replace(read, usage=usage)
            put(engine, (exchange, read, charge(exchange, read, book)))


@pytest.fixture(scope="module", params=ORIGINS)
def url(request: Any, tmp_path_factory: Any) -> str:
    found = f"sqlite:///{tmp_path_factory.mktemp('why') / 'ledger.sqlite3'}"
    recorded(found, request.param)
    return found


def answer(command: Any, *words: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(words))


def run(command: Any, *words: str) -> Any:
    result = answer(command, *words)
    assert result.exit_code == 0, result.output
    return result


def test_a_command_prints_the_causes(url):
    result = run(why.cache, "--ledger", url, "--format", "json")
    assert result.stderr == "left out: 1 request without segments\n"
    rows = json.loads(result.stdout)
    assert [list(row) for row in rows] == [ROW] * 3
    found = {(row["reason"], row["segment"], row["requests"]) for row in rows}
    assert found == {("changed", "tools[4] tool4", 1), ("hit", None, 2), ("first", None, 1)}
    assert rows[0]["reason"] == "changed"
    assert rows[0]["example"] == "e2"
    assert rows[0]["session"] == "s"
    assert rows[0]["tokens"] > 1_000
    by_model = json.loads(run(why.cache, "--ledger", url, "--by", "model", "-f", "json").stdout)
    assert [list(row) for row in by_model] == [["model", *ROW]]
    expected = rows[0]["tokens"] * LOST_USD_PER_MTOK[by_model[0]["model"]] / 10**6
    assert rows[0]["list_value_usd"] == pytest.approx(expected)
    assert "changed" in run(why.cache, "--ledger", url, "--by", "reason").stdout
    of_one = json.loads(run(why.cache, "--ledger", url, "-f", "json", "--only", "key=key 2").stdout)
    assert [(row["reason"], row["example"]) for row in of_one] == [("changed", "e2")]
    none = run(why.cache, "--ledger", url, "--session", "another", "-f", "json")
    assert json.loads(none.stdout) == []
    assert "nothing found" in run(why.cache, "--ledger", url, "--session", "another").stderr


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    ("command", "words", "heading"),
    [
        (why.cache, [], "Reason"),
        (why.context, [], "Session"),
    ],
)
def test_a_table_has_whole_words_at_every_width(
    url, monkeypatch, command: Any, words: list[str], heading: str, width: int
):
    monkeypatch.setenv("COLUMNS", str(width))
    found = run(command, "--ledger", url, *words)
    lines = found.stdout.splitlines()
    assert lines[0].startswith(heading)
    assert "…" not in lines[0]
    assert max(map(len, lines)) <= width


def test_a_command_prints_what_fills_the_input(url):
    result = run(why.context, "--ledger", url, "--format", "json")
    rows = json.loads(result.stdout)
    assert list(rows[0]) == [
        *("session", "agent", "part", "name", "bytes", "tokens", "calls", "list_value_usd"),
        "unused",
    ]
    (tokens,) = row(url, "SELECT sum(input_tokens) FROM requests WHERE id <> 'e4'")
    (charged,) = row(
        url,
        "SELECT sum(amount_picousd) FROM charges WHERE exchange_id <> 'e4' AND "
        "line NOT IN ('output', 'reasoning', 'web_searches')",
    )
    assert sum(row["tokens"] for row in rows) == tokens
    assert sum(row["list_value_usd"] for row in rows) == pytest.approx(charged / 10**12)
    assert "1 request without segments" in result.stderr
    table = run(why.context, "--ledger", url, "--session", "s")
    assert "tools that were never called" in table.stderr
    assert "Share" in table.stdout


@pytest.mark.postgres
def test_both_databases_say_the_same(new_postgres, url):
    """On PostgreSQL sums are numeric, moments are moments, and rows come from a server's cursor."""
    other = new_postgres()
    merging.sync(url, other)
    commands: list[tuple[Any, list[str]]] = [
        (why.cache, []),
        (why.cache, ["--by", "key", "--since", "2026-11-02"]),
        (why.context, []),
    ]
    for command, words in commands:
        one, two = (
            json.loads(run(command, "--ledger", each, "-f", "json", *words).stdout)
            for each in (url, other)
        )
        assert one == two
