"""A real mitmdump whose wall clock does not stand still: no duration of an exchange shows it."""

from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.mitmdump import SCRIPTS
from tests.proxy.pair import ANTHROPIC, OPENAI, exchange, new_tag, pair, speak

pytestmark = pytest.mark.proxy


def test_no_duration_shows_a_wall_clock_that_is_set_at_every_moment(tmp_path: Path) -> None:
    with pair(tmp_path, with_bare=False, beside=(SCRIPTS / "restless_clock.py",)) as running:
        for wire in (OPENAI, ANTHROPIC):
            running.upstream.script = speak(wire)
            for asked in (True, False):
                exchange(running.tee, wire, new_tag(), asked=asked)
        found = rows.query(running.tee.ledger, "SELECT duration_ms, first_token_ms FROM requests")
    assert len(found) >= 3
    for row in found:
        assert 0 <= row["first_token_ms"] <= row["duration_ms"] < 60_000
