"""The calls of the demo's agent."""

import contextlib
import socket
from threading import Thread

import pytest

from addon.demo import traffic
from addon.demo.scenes import scenes
from ledger.model.errors import LedgerError


def test_a_proxy_that_ends_under_a_call_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            accepted, _ = server.accept()
            with contextlib.closing(accepted):
                accepted.recv(1)

        ending = Thread(target=end)
        ending.start()
        with pytest.raises(LedgerError, match="mitmdump did not answer"):
            traffic.play(next(iter(scenes())), server.getsockname()[1])
        ending.join()
