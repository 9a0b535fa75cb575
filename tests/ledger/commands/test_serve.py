"""`tokentee mcp`, asked by the SDK's own client over the standard streams of a real process."""

import asyncio
import json
import sys
from datetime import timedelta

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.server.fastmcp.exceptions import ToolError

from ledger.commands import serve
from ledger.commands.serve import (
    ANSWER_BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    ROWS_MAX,
    Answers,
    bounded,
)
from ledger.model.errors import LedgerError
from ledger.pages.live.read_only import open_read_only

TOOLS = {"report", "requests", "explain", "limits", "cache", "budgets"}


def asked(url, *questions):
    """What the tools answer; (text, whether it is an error) for each question."""
    code = "from addon.cli import main; main()"
    server = StdioServerParameters(
        command=sys.executable, args=["-c", code, "mcp", "--ledger", url], env=None
    )

    async def ask():
        async with (
            stdio_client(server) as (read, write),
            ClientSession(read, write, read_timeout_seconds=timedelta(seconds=60)) as client,
        ):
            await client.initialize()
            listed = await client.list_tools()
            tools = {tool.name: tool for tool in listed.tools}
            found = [await client.call_tool(name, words) for name, words in questions]
        return tools, [(str(one.content[0].text), bool(one.isError)) for one in found]  # type: ignore[union-attr]

    return asyncio.run(ask())


@pytest.mark.process
def test_every_tool_answers_with_the_figures_of_its_command(run, ledger):
    place = json.loads(run("requests", "--limit", "1", "-f", "json").stdout)[0]
    tools, answers = asked(
        ledger,
        ("report", {"by": ["model"], "top": 50}),
        ("requests", {"kinds": ["errors"], "limit": 5}),
        ("explain", {"id": place["id"]}),
        ("limits", {}),
        ("cache", {"by": "model"}),
        ("budgets", {}),
        ("report", {"by": ["colour"]}),
        ("requests", {"before": "x"}),
        ("requests", {"kinds": ["all"]}),
    )
    assert set(tools) == TOOLS
    assert all(tool.annotations.readOnlyHint for tool in tools.values())
    assert all(tool.description for tool in tools.values())
    texts = [text for text, is_error in answers[:6] if not is_error]
    assert len(texts) == 6
    report = json.loads(run("report", "-f", "json").stdout)
    assert json.loads(texts[0])["total"] == report["total"]
    assert len(json.loads(texts[1])["requests"]) == report["total"]["errors"]
    assert json.loads(texts[2])["exchange"]["id"] == place["id"]
    assert all(is_error for _, is_error in answers[6:])
    assert "nothing is by 'colour'" in answers[6][0]
    assert "not the place of a request" in answers[7][0]


def test_an_answer_is_bounded_and_says_what_is_left_out():
    rows = [{"name": "\u202e" * 300, "n": number} for number in range(5_000)]
    text = bounded({"rows": rows, "total": 1}, "rows")
    found = json.loads(text)
    assert len(text.encode()) <= ANSWER_BYTES_MAX
    assert 0 < len(found["rows"]) <= ROWS_MAX
    assert found["left_out"] == f"{5_000 - len(found['rows'])} of 5000 rows: ask for less"
    assert json.loads(bounded({"rows": rows[:2]}, "rows")) == {"rows": rows[:2]}
    with pytest.raises(LedgerError, match="too long"):
        bounded({"rows": [], "text": "x" * ANSWER_BYTES_MAX}, "rows")


def test_questions_out_of_bounds_are_bounded():
    assert [serve._within(count) for count in (-1, 0, 7, 10**9)] == [1, 1, 7, ROWS_MAX]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("explain", {"id": "x" * 10**6}),
        ("report", {"by": ["model"] * 5_000}),
        ("report", {"by": ["x" * 10**5]}),
        ("report", {"only": ["y" * 10**5]}),
        ("report", {"since": "z" * 10**5}),
        ("requests", {"before": "w" * 10**5}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_an_error_is_one_short_line_without_sql(ledger, tool, words):
    engine = open_read_only(ledger)
    try:
        with pytest.raises(ToolError) as refused:
            serve._said(getattr(Answers(engine), tool))(**words)
    finally:
        engine.dispose()
    text = str(refused.value)
    assert len(text) <= ERROR_CHARACTERS_MAX
    assert "SELECT" not in text
    assert "\n" not in text
