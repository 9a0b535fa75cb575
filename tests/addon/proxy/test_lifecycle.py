"""Closing the ledger: what is wrong at the end is one warning."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from addon.proxy import lifecycle
from ledger.store.processes.health import Health, ThreadHealth


def thread(name, *, is_working=True):
    return ThreadHealth(
        name=name, is_working=is_working, failures=3, set_aside=0, error="RuntimeError('x')"
    )


def health(*threads, trouble=None, dropped=0, set_aside=0):
    return Health(
        threads=threads, trouble=trouble, queued_rows=0, dropped=dropped, set_aside=set_aside
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (health(thread("writer")), []),
        (
            health(thread("writer"), thread("shipper", is_working=False), dropped=2),
            [
                "tokentee: recording ended with problems: "
                "the shipper does not work: RuntimeError('x'); 2 exchanges are not in the ledger"
            ],
        ),
        (
            health(thread("writer"), trouble="disk full", set_aside=1),
            [
                "tokentee: recording ended with problems: "
                "the ledger cannot be written: disk full; 1 items were set aside"
            ],
        ),
    ],
)
def test_what_is_wrong_at_the_end_is_one_warning(caplog, found, said):
    closed = []
    ledger = SimpleNamespace(close=closed.append, health=lambda: found)
    with caplog.at_level(logging.WARNING):
        asyncio.run(lifecycle.close(SimpleNamespace(captures=None, ledger=ledger, watching=None)))
    assert closed == [lifecycle.CLOSE_SECONDS_MAX]
    assert caplog.messages == said


def test_captures_that_were_not_written_are_in_the_warning_at_the_end(caplog):
    ledger = SimpleNamespace(close=lambda _: None, health=lambda: health(thread("writer")))
    captures = SimpleNamespace(
        close=lambda _: None, problems=lambda: ("2 captures were not written",)
    )
    running = SimpleNamespace(captures=captures, ledger=ledger, watching=None)
    with caplog.at_level(logging.WARNING):
        asyncio.run(lifecycle.close(running))
    assert caplog.messages == [
        "tokentee: recording ended with problems: 2 captures were not written"
    ]
