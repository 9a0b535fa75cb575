"""The gate of caps: how much of a cap can be spent before it refuses, and what it does in trouble."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from mitmproxy.io import FlowWriter
from mitmproxy.websocket import WebSocketMessage
from msgspec.structs import replace
from typer.testing import CliRunner

from addon.cli import application
from addon.dialects import routes
from addon.framing.long_json import without_pauses
from addon.metering.segments import read_in_steps
from addon.metering.websocket import OPEN_MAX, WAITING_MAX
from addon.parts.caps import admission
from addon.parts.caps.gate import Gate
from addon.parts.caps.limits import read_limits
from addon.proxy.recorder import Recorder
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing
from ledger.model.usage import Usage
from ledger.parts.budgets.book import Held, Refusal, Standing, Waiting
from ledger.parts.budgets.budgets_file import CapFile
from ledger.parts.budgets.caps import NOTHING, Cap
from ledger.parts.budgets.shared import SharedCaps
from ledger.pricing.prices import PriceBook
from ledger.settings.names import NO_NAMES
from ledger.store import db
from ledger.store.processes import nodes
from tests.addon.proxy.recording import DOCUMENT, answered, flow_of, passed_on, recording
from tests.addon.recordings.recorded_files import SESSION
from tests.addon.recordings.recorded_files import flow as session_flow
from tests.ledger.written import opened, reading, rows

MESSAGES = routes.DIALECTS["anthropic.messages"]
PRICES = PriceBook()
app = application()
USD = 10**12


def gate_under(cap: Cap, table: Any = None) -> Gate:
    gate = Gate(own=(cap,), prices=PRICES, file=CapFile(), shared=lambda: table)
    gate.book.set_caps([cap], NO_NAMES)
    return gate


async def talk(gate: Gate, number: int) -> None:
    """A conversation of 12 turns that states ten times the output that it uses, in a provider that
    counts four bytes a token and keeps what it has read."""
    messages: list[Any] = [{"role": "user", "content": f"{number:04}" + "x" * 8_000}]
    known = 0
    for turn in range(12):
        body = {"model": "claude-sonnet-4-6", "max_tokens": 4_000, "messages": messages}
        data = orjson.dumps(body)
        chat = without_pauses(read_in_steps(data, b"secret"))
        limits = read_limits(MESSAGES, body, data, chat.parts)
        exchange = opened(
            f"{number}/{turn}", at=datetime.now(UTC), dialect=MESSAGES.name, provider="anthropic",
            origin="https://api.anthropic.com:443", request_model="claude-sonnet-4-6",
        )  # fmt: skip
        found = gate.ask(exchange, limits, fields={}, billing=Billing.METERED)
        if isinstance(found, Waiting):
            found = await gate.wait(found)
        if isinstance(found, Refusal):
            raise RefusedError(found.message)
        await asyncio.sleep(0)
        whole = len(data) // 4
        usage = Usage(
            input_tokens=whole, cache_read_tokens=known, cache_write_tokens=whole - known,
            output_tokens=400,
        )  # fmt: skip
        known = whole
        gate.settled(exchange, replace(reading(exchange), usage=usage), limits)
        messages += ({"role": "assistant", "content": "y" * 1_600},
                     {"role": "user", "content": "z" * 8_000})  # fmt: skip


class RefusedError(Exception):
    """The first refusal."""


async def spent_at_first_refusal(usd: str, at_once: int) -> float:
    """The share of a cap that conversations, so many at once, can spend."""
    gate = gate_under(Cap(name="run", usd=Decimal(usd), period="run"))
    numbers = count()

    async def work() -> None:
        while True:
            await talk(gate, next(numbers))

    workers = [asyncio.create_task(work()) for _ in range(at_once)]
    await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
    for each in workers:
        each.cancel()
    assert any(
        isinstance(each, RefusedError)
        for each in await asyncio.gather(*workers, return_exceptions=True)
    )
    ((_, share),) = gate.shares()
    return share


def test_most_of_a_cap_can_be_spent_one_after_another():
    assert asyncio.run(spent_at_first_refusal("2.5", at_once=1)) >= 0.9


def test_most_of_a_cap_can_be_spent_by_twenty_at_once():
    assert asyncio.run(spent_at_first_refusal("0.5", at_once=20)) >= 0.7


async def answer_under(cap: Cap, ledger: Path, **headers: str) -> Any:
    """What a client gets for a request."""
    async with recording(ledger, recorder=Recorder(caps=(cap,))) as (recorder, _):
        flow = flow_of(headers={name.replace("_", "-"): text for name, text in headers.items()})
        recorder.requestheaders(flow)
        assert recorder.request(flow) is None
        assert flow.response is not None
        return flow.response


def test_a_request_that_could_not_be_read_is_refused(ledger, monkeypatch):
    """Not because it was read before there was a cap."""
    failing = staticmethod(lambda *_: 1 / 0)
    monkeypatch.setattr(admission.CapAuthoriser, "limits_of", failing)
    response = asyncio.run(answer_under(Cap(name="run", usd=5, period="run"), ledger))
    assert (response.status_code, "could not be read" in response.text) == (402, True)


@pytest.mark.parametrize(
    ("user_agent", "status"), [("codex_exec/0.169.0", 400), ("curl/8", 402)], ids=["codex", "curl"]
)
def test_a_client_gets_a_status_that_it_does_not_repeat(ledger, user_agent, status):
    cap = Cap(name="run", tokens=10, period="run")
    response = asyncio.run(answer_under(cap, ledger, user_agent=user_agent))
    assert response.status_code == status
    assert "refused by the cap run" in response.json()["error"]["message"]
    (row,) = rows(
        db.open_engine(f"sqlite:///{ledger}"), "SELECT outcome, http_status FROM requests"
    )
    assert tuple(row) == ("refused", status)


def test_use_of_a_plan_is_capped_by_its_list_value_alone():
    """Until an answer of the key was billed by tokens: then the plan is used up."""
    body = {"model": "claude-sonnet-4-6", "max_tokens": 4_000, "messages": []}
    limits = read_limits(MESSAGES, body, orjson.dumps(body))
    exchange = opened(
        "e", provider="anthropic", origin="https://api.anthropic.com:443", dialect=MESSAGES.name,
        request_model="claude-sonnet-4-6", key_fingerprint="k",
    )  # fmt: skip

    def ask(gate: Gate) -> object:
        return gate.ask(exchange, limits, fields={}, billing=Billing.PLAN)

    cents = Decimal("0.01")
    billed = gate_under(Cap(name="run", usd=cents, period="run"))
    assert isinstance(ask(billed), Held)
    by_list = gate_under(Cap(name="run", list_value_usd=cents, period="run"))
    assert isinstance(ask(by_list), Refusal)
    billed.settled(exchange, replace(reading(exchange), billing=Billing.METERED), limits)
    assert isinstance(ask(billed), Refusal)


class Away:
    """A table in which all fits, and that is away at times."""

    trouble: Exception | None = None

    def turn(self, _changes: object, wanted: list[Any], *_: object) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return [[Standing(True, NOTHING, NOTHING) for _ in accounts] for accounts, _ in wanted]

    def look(self, accounts: list[Any], *_: object) -> list[Standing]:
        return [Standing(True, NOTHING, NOTHING) for _ in accounts]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [(LedgerError("u@db is down"), "u@db is down"), (ValueError("?"), "Tokentee failed")],
)
async def test_a_table_that_is_away_is_said_once_and_asked_again(trouble, why, caplog):
    table = Away()
    gate = gate_under(Cap(name="daily", requests=4, period="day", wait=0), table)
    limits = read_limits(MESSAGES, {"max_tokens": 1}, b"{}")

    async def ask() -> object:
        exchange = opened("e", at=datetime.now(UTC))
        found = gate.ask(exchange, limits, fields={}, billing=Billing.METERED)
        return await gate.wait(found) if isinstance(found, Waiting) else found

    table.trouble = trouble
    for _ in range(2):
        found = await ask()
        assert isinstance(found, Refusal)
        assert "the ledger cannot be reached: Tokentee's log says why" in found.message
    table.trouble = None
    assert isinstance(await ask(), Held)
    said = [line for line in caplog.messages if "caps" in line and "proxies" in line]
    assert ["other proxies cannot be asked" in line for line in said] == [True, False]
    assert why in said[0]
    assert said[1] == "tokentee: the caps are shared with other proxies again"


async def test_a_client_that_leaves_while_the_table_is_asked_costs_nothing(tmp_path):
    file = tmp_path / "ledger.db"
    db.ensure(f"sqlite:///{file}").dispose()
    claim = nodes.Claim(file, "n").take()
    table = SharedCaps(f"sqlite:///{file}", node="n", file=file)
    gate = gate_under(Cap(name="daily", requests=1, period="day"), table)
    limits = read_limits(MESSAGES, {"max_tokens": 1}, b"{}")

    def waits(name: str) -> Any:
        exchange = opened(name, at=datetime.now(UTC))
        found = gate.ask(exchange, limits, fields={}, billing=Billing.METERED)
        assert isinstance(found, Waiting)
        return asyncio.create_task(gate.wait(found))

    left = waits("a")
    await asyncio.sleep(0)
    left.cancel()
    assert isinstance(await waits("b"), Held)
    gate.release()
    claim.release()


async def test_a_file_that_changed_puts_other_caps_in_force(tmp_path, monkeypatch):
    file, changes = tmp_path / "budgets.toml", list[int]()
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    one = "[[cap]]\nname = 'one'\nusd = 5\nperiod = 'day'\n"
    file.write_text(one)
    gate = gate_under(Cap(name="run", usd=1, period="run"), Away())
    gate._on_change = lambda: changes.append(1)

    async def in_force() -> dict[str, Any]:
        await gate._look()
        return {name: cap.usd for name, cap in gate.book.caps.items()}

    assert await in_force() == await in_force() == {"run": 1, "one": 5}
    file.write_text(one.replace("usd = 5", "usd = 50"))
    assert await in_force() == {"run": 1, "one": 50}
    file.write_text(one.replace("'one'", "'other'"))
    assert await in_force() == {"run": 1, "other": 5}
    assert len(changes) == 3


@pytest.mark.parametrize(
    "text",
    [
        "[[cap]]\nname = 'one'\nusd = -5\nperiod = 'day'\n",
        "[[cap]]\nname = 'on",
        "[[caps]]\nname = 'one'\nusd = 5\nperiod = 'day'\n",
        "not TOML",
        "[[budget]]\nname = 1\n",
    ],
    ids=["value", "half", "table", "words", "budget"],
)
async def test_a_file_that_is_wrong_changes_nothing(tmp_path, monkeypatch, caplog, text):
    """In a running proxy; at a start it ends the start."""
    file = tmp_path / "budgets.toml"
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    file.write_text("[[cap]]\nname = 'one'\nusd = 5\nperiod = 'day'\n")
    gate = gate_under(Cap(name="run", usd=1, period="run"), Away())
    await gate._look()
    file.write_text(text)
    for _ in range(3):
        await gate._look()
        assert list(gate.book.caps) == ["run", "one"]
    assert sum("the caps stay as they were" in line for line in caplog.messages) == 1
    with pytest.raises(LedgerError):
        CapFile().first(())


async def test_a_file_that_became_empty_counts_when_it_still_is(tmp_path, monkeypatch):
    file, one = tmp_path / "budgets.toml", "[[cap]]\nname = 'one'\nusd = 5\nperiod = 'day'\n"
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    file.write_text(one)
    gate = gate_under(Cap(name="run", usd=1, period="run"), Away())
    await gate._look()
    for text, names in (
        ("", ["run", "one"]),
        (one, ["run", "one"]),
        ("", ["run", "one"]),
        ("", ["run"]),
    ):
        file.write_text(text)
        await gate._look()
        assert list(gate.book.caps) == names


async def test_responses_that_are_asked_for_and_never_begin_are_bounded(ledger):
    cap, all_held = Cap(name="run", tokens=10**9, period="run"), WAITING_MAX + OPEN_MAX
    async with recording(ledger, recorder=Recorder(caps=(cap,))) as (recorder, _):
        flow = session_flow(SESSION)
        flow.live = True
        assert flow.websocket is not None
        (create, *_), flow.websocket.messages = flow.websocket.messages, []
        recorder.request(flow)
        recorder.responseheaders(flow)
        await recorder.response(flow)
        for _ in range(all_held + 1):
            flow.websocket.messages.append(create)
            await recorder.websocket_message(flow)
        assert recorder.recording is not None
        gate = recorder.recording.authoriser
        assert isinstance(gate, Gate)
        (account,) = gate.book.accounts(datetime.now(UTC))
        assert (account.held.requests, account.spent.requests) == (all_held, 1)
        one = account.spent.tokens
        recorder.websocket_end(flow)
        assert account.held == NOTHING
        # What became of them is not known: each counts its hold.
        assert account.spent[2:] == ((all_held + 1) * (one or 0), all_held + 1)


async def test_a_message_that_is_no_json_passes_no_cap(ledger):
    """Over a WebSocket as over HTTP; one that asks for nothing goes on."""
    async with recording(
        ledger, recorder=Recorder(caps=(Cap(name="run", usd=1000, period="run"),))
    ) as (recorder, _):
        flow = session_flow(SESSION)
        flow.live = True
        assert flow.websocket is not None
        (create, *_), flow.websocket.messages = flow.websocket.messages, []
        recorder.request(flow)
        recorder.responseheaders(flow)
        await recorder.response(flow)
        asked, passed = create.content, []
        for content in (
            asked[:-1] + b"\xff}",
            asked + b"\0",
            asked + b"{}",
            asked[:-1] + b",}",
            b"[" + asked + b"]",
            b'{"type":"response.cancel"}',
        ):
            message = WebSocketMessage(create.type, True, content)
            flow.websocket.messages.append(message)
            await recorder.websocket_message(flow)
            passed.append(not message.dropped)
        recorder.websocket_end(flow)
    assert passed == [False] * 5 + [True]


def test_commands_know_a_refused_request(tmp_path):
    """One request is answered and one refused, captured and saved by mitmproxy. `verify` and
    `rebuild` miss nothing, `replay` and `sync` count one refused request, and none twice."""
    ledger, captures, saved = (tmp_path / name for name in ("l.db", "captures", "flows"))
    cap = Cap(name="run", requests=1, unpriced="pass", period="run")

    async def play() -> None:
        recorder = Recorder(caps=(cap,))
        async with recording(ledger, recorder=recorder, tee_capture=str(captures)):
            flows = [flow_of(), flow_of()]
            for flow in flows:
                recorder.requestheaders(flow)
                assert recorder.request(flow) is None
                if flow.response is None:
                    response = answered(flow, content_type="application/json")
                    recorder.responseheaders(flow)
                    passed_on(response, [DOCUMENT])
                    await recorder.response(flow)
                    response.content = DOCUMENT
            with saved.open("wb") as file:
                for flow in flows:
                    FlowWriter(file).add(flow)

    asyncio.run(play())

    def call(*words: object) -> str:
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, (words, done.output)
        return done.output

    def outcomes(file: str) -> list[Any]:
        query = "SELECT outcome, http_status, error_code FROM requests ORDER BY outcome"
        with db.disposing(db.open_engine(file)) as engine:
            return list(map(tuple, rows(engine, query)))

    own, other, new = (f"sqlite:///{tmp_path / name}" for name in ("l.db", "other.db", "new.db"))
    both = [("complete", 200, None), ("refused", 402, "run")]
    assert outcomes(own) == both
    assert "everything holds" in call("verify", captures, "--ledger", own)
    rebuilt = call("rebuild", captures, "--ledger", own)
    assert "0 exchanges are read differently now, 1 as they are booked" in rebuilt
    call("replay", captures, saved, "--ledger", own)
    call("sync", own, other)
    call("replay", saved, "--ledger", new)
    assert outcomes(own) == outcomes(other) == outcomes(new) == both
