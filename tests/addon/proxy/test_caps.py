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
from msgspec.structs import replace
from typer.testing import CliRunner

from addon.caps.limits import read_limits
from addon.cli import application
from addon.dialects import routes
from addon.framing.long_json import without_pauses
from addon.metering.segments import read_in_steps
from addon.metering.websocket import OPEN_MAX, WAITING_MAX
from addon.proxy import lifecycle
from addon.proxy.caps import CapFile, Gate
from addon.proxy.recorder import Recorder
from ledger.caps.book import Ask, Held, Refusal, Waiting
from ledger.caps.caps import NOTHING, Cap
from ledger.caps.leases import NO_CAP_PART, SLICE_SECONDS, grant
from ledger.model.errors import LedgerError
from ledger.model.exchange import Billing
from ledger.model.usage import Usage
from ledger.pricing.prices import PriceBook
from ledger.settings.names import NO_NAMES
from ledger.store import db
from tests.addon.proxy.recording import DOCUMENT, answered, flow_of, passed_on, recording
from tests.addon.recordings.recorded_files import SESSION
from tests.addon.recordings.recorded_files import flow as session_flow
from tests.ledger.written import opened, reading, rows

MESSAGES = routes.DIALECTS["anthropic.messages"]
PRICES = PriceBook()
app = application()
USD = 10**12


def gate_under(cap: Cap) -> Gate:
    file = CapFile("sqlite://", node="host/1/1", written=Path("x"))
    gate = Gate(own=(cap,), prices=PRICES, file=file, is_written=lambda: True)
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
    monkeypatch.setattr(lifecycle, "read_limits", lambda *_: 1 / 0)
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
    """A ledger that has nothing of others, and is away at times."""

    trouble: Exception | None = None
    left: tuple[str, ...] = ()

    def join(self, *_: object) -> bool:
        return True

    def leave(self, caps: list[Cap]) -> None:
        self.left += tuple(cap.name for cap in caps)

    def exchange(self, _caps: object, _names: object, asks: list[Ask], _now: object) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return [
            (
                ask,
                grant(
                    ask.account.limits, ask.own, NO_CAP_PART, ask.wants,
                    processes=1, is_contended=False,
                ),
                NO_CAP_PART,
            )
            for ask in asks
        ], set()  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "why"),
    [(LedgerError("it is down"), "it is down"), (ValueError("?"), "Tokentee failed")],
)
def test_a_ledger_that_is_away_is_said_once_and_asked_again(trouble, why, monkeypatch, caplog):
    ledger = Away()
    monkeypatch.setattr(CapFile, "shared", lambda _: ledger)
    gate = gate_under(Cap(name="daily", requests=4, period="day", wait=0))
    limits = read_limits(MESSAGES, {"max_tokens": 1}, b"{}")

    def ask() -> object:
        exchange = opened("e", at=datetime.now(UTC))
        return gate.ask(exchange, limits, fields={}, billing=Billing.METERED)

    async def play() -> None:
        ledger.trouble = trouble
        for _ in range(2):
            await gate.share()
        found = ask()
        assert isinstance(found, Refusal)
        assert f"the ledger cannot be reached: {why}" in found.message
        ledger.trouble = None
        await gate.share()
        assert isinstance(ask(), Held)
        assert not gate.wake.is_set()
        assert isinstance(ask(), Held)
        assert gate.wake.is_set()  # more than half of the slice is used
        gate._renewed_at -= SLICE_SECONDS
        assert isinstance(ask(), Waiting)

    asyncio.run(play())
    said = [line for line in caplog.messages if "caps" in line and "proxies" in line]
    assert ["other proxies cannot be asked" in line for line in said] == [True, False]
    assert said[1] == "tokentee: the caps are shared with other proxies again"


async def test_a_file_that_changed_puts_other_caps_in_force(tmp_path, monkeypatch):
    file, ledger, changes = tmp_path / "budgets.toml", Away(), count()
    monkeypatch.setenv("TOKENTEE_BUDGETS", str(file))
    monkeypatch.setattr(CapFile, "shared", lambda _: ledger)
    one = "[[cap]]\nname = 'one'\nusd = 5\nperiod = 'day'\n"
    file.write_text(one)
    gate = gate_under(Cap(name="run", usd=1, period="run"))
    gate.on_change = lambda: print(next(changes))
    await gate._look()
    assert list(gate.book.caps) == ["run", "one"]
    await gate._look()
    file.write_text(one.replace("usd = 5", "usd = 50"))
    await gate._look()
    assert gate.book.caps["one"].usd == 50
    assert list(ledger.left) == [
        "one"
    ]  # it is counted from the ledger again, as it was never shared
    file.write_text(one.replace("usd = 5", "usd = -5"))
    with pytest.raises(LedgerError, match="usd: -5 is not an amount"):
        await gate._look()
    assert gate.book.caps["one"].usd == 50
    file.write_text(one.replace("'one'", "'other'"))
    await gate._look()
    assert list(gate.book.caps) == ["run", "other"]
    assert list(ledger.left) == ["one", "one"]
    assert next(changes) == 3


def test_at_the_end_what_is_not_used_goes_back(monkeypatch):
    gate, ledger = gate_under(Cap(name="daily", requests=9, period="day")), Away()
    gate.file.release(gate.book)  # nothing was shared
    monkeypatch.setattr(gate.file, "_shared", ledger)
    gate.file.release(gate.book)
    assert ledger.left == ("daily",)
    ledger.trouble = LedgerError("it is down")
    gate.file.release(gate.book)  # others find it out
    assert ledger.left == ("daily",)


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
        (account,) = recorder.recording.gate.book.accounts(datetime.now(UTC))
        assert (account.held.requests, account.spent.requests) == (all_held, 1)
        one = account.spent.tokens
        recorder.websocket_end(flow)
        assert account.held == NOTHING
        # What became of them is not known: each counts its hold.
        assert account.spent[2:] == ((all_held + 1) * (one or 0), all_held + 1)


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
