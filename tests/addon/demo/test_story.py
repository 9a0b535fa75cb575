"""The demo's check finds what is wrong; the whole is in tests/proxy/test_demo.py."""

import contextlib
import socket
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest

from addon.demo.story import CALLS, KNOWN, USAGE_EVENT, mistakes_in, send
from ledger.figures.request_list import ListedRequest
from ledger.model.errors import LedgerError
from tests.named import for_each

BODIES = {call.name: USAGE_EVENT.sub(b"", call.response_body) for call in CALLS}
NAMES = ("outcome", "usage_source", "billing", "input_tokens", "cache_read_tokens", "output_tokens")


def row_of(name: str) -> ListedRequest:
    """The row that a right ledger has of a call."""
    empty: dict[str, Any] = dict.fromkeys(ListedRequest.__dataclass_fields__) | {
        "opened_at": datetime(2026, 11, 23, tzinfo=UTC),
        "id": name,
        "charges": (),
        "session_id": name,
    }
    return ListedRequest(**empty | dict(zip(NAMES, KNOWN[name], strict=True)))


ROWS = [row_of(call.name) for call in CALLS]


def test_a_right_ledger_has_no_mistakes():
    assert [call.name for call in CALLS] == list(KNOWN)
    assert mistakes_in(BODIES, ROWS) == []


@for_each(
    "changes, expected",
    [
        ({"input_tokens": 43}, "43, None, 212)] instead of"),
        ({"output_tokens": None}, "1850, None, None)] instead of"),
        ({"cache_read_tokens": 0}, "1850, 0, 212)] instead of"),
    ],
)
def test_a_wrong_figure_is_told(changes: dict[str, Any], expected: str):
    (mistake,) = mistakes_in(BODIES, [replace(ROWS[0], **changes), *ROWS[1:]])
    assert mistake.startswith(f"{CALLS[0].name}: ")
    assert expected in mistake


def test_a_missing_row_a_second_row_and_a_wrong_body_are_told():
    assert "[] instead of" in mistakes_in(BODIES, ROWS[1:])[0]
    assert len(mistakes_in(BODIES, [*ROWS, ROWS[0]])) == 1
    (mistake,) = mistakes_in(BODIES | {CALLS[1].name: b"other"}, ROWS)
    assert mistake.endswith("the client did not get what upstream sent")


def test_what_is_injected_is_what_the_client_does_not_get():
    with_usage = [call for call in CALLS if BODIES[call.name] != call.response_body]
    assert [call.name for call in with_usage] == ["streams, asks for no usage"]
    assert b'"usage"' in with_usage[0].response_body
    assert b'"usage"' not in BODIES[with_usage[0].name]


def test_a_proxy_that_ends_under_a_call_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            accepted, _ = server.accept()
            with contextlib.closing(accepted):
                accepted.recv(1)

        ending = Thread(target=end)
        ending.start()
        with pytest.raises(LedgerError, match="mitmdump did not answer"):
            send(CALLS[0], server.getsockname()[1])
        ending.join()
