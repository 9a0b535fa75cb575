"""One line for each exchange, when asked."""

from msgspec.structs import replace

from addon.metering.settlement import Settled
from addon.proxy.display.exchange_log import line_of
from ledger.model.usage import Usage
from tests.ledger.written import charge, reading, settled

EXCHANGE = settled("e", seconds=0.842)
READING = reading(EXCHANGE)


def test_a_line_names_model_tokens_cost_outcome_and_time():
    line = line_of(Settled(EXCHANGE, READING), lambda *_: (charge("output", 1, 3_100_000_000),))
    assert line == "model-1 in 100 (40 cached) out 20 $0.0031 complete 842 ms"


def test_what_is_not_known_is_no_zero():
    unknown = Settled(replace(EXCHANGE, settled_at=None), replace(READING, usage=Usage()))
    unpriced, priced = charge("output", 1, None), charge("output", 1, 10**12)
    assert line_of(unknown, lambda *_: ()) == "model-1 in - out - - complete -"
    assert " unpriced " in line_of(unknown, lambda *_: (unpriced,))
    assert " >= $1.00 " in line_of(unknown, lambda *_: (unpriced, priced))


def test_hostile_text_cannot_reach_the_terminal():
    exchange = replace(EXCHANGE, response_model="\x1b[2Jm\nx")
    line = line_of(Settled(exchange, READING), lambda *_: ())
    assert "\x1b" not in line
    assert "\n" not in line
