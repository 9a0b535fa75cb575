"""One line for each exchange, when asked."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from addon.metering.settlement import Settled
from addon.proxy.display.exchange_log import line_of
from ledger.model.charge import Charge
from ledger.model.exchange import Exchange, Outcome
from ledger.model.reading import Reading, UsageSource
from ledger.model.usage import Usage

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
EXCHANGE = Exchange(
    id="e",
    origin="https://llm.example:443",
    provider="openai",
    dialect="openai.chat",
    operation="chat",
    path="/v1/chat/completions",
    opened_at=NOW,
    request_model="gpt-4o",
    outcome=Outcome.COMPLETE,
    settled_at=NOW + timedelta(milliseconds=842),
)
READING = Reading(
    exchange_id="e",
    opened_at=NOW,
    meter_version="1",
    usage_source=UsageSource.REPORTED,
    usage=Usage(input_tokens=1204, cache_read_tokens=1024, output_tokens=87),
    read_at=NOW,
)


def charge(amount: int | None) -> Charge:
    return Charge(
        line="output",
        quantity=1,
        unit_picousd=amount,
        amount_picousd=amount,
        price_source="test",
        priced_at=NOW,
    )


def test_a_line_names_model_tokens_cost_outcome_and_time():
    line = line_of(Settled(EXCHANGE, READING), lambda *_: (charge(3_100_000_000),))
    assert line == "gpt-4o in 1204 (1024 cached) out 87 $0.0031 complete 842 ms"


def test_what_is_not_known_is_no_zero():
    reading = replace(READING, usage=Usage())
    settled = Settled(replace(EXCHANGE, settled_at=None), reading)
    assert line_of(settled, lambda *_: ()) == "gpt-4o in - out - - complete -"
    assert " unpriced " in line_of(settled, lambda *_: (charge(None),))
    assert " >= $1.00 " in line_of(settled, lambda *_: (charge(None), charge(10**12)))


def test_hostile_text_cannot_reach_the_terminal():
    exchange = replace(EXCHANGE, response_model="\x1b[2Jm\nx")
    line = line_of(Settled(exchange, READING), lambda *_: ())
    assert "\x1b" not in line
    assert "\n" not in line
