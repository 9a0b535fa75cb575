"""Connecting per request, unless the operator chose otherwise."""

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest
from mitmproxy import options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow

from addon.proxy.host.connections import READ_BYTES_MAX, connect_per_request, limit_reads

REVERSE = ["reverse:http://127.0.0.1:9@1"]


def test_in_reverse_mode_it_is_set_said_and_set_back():
    with taddons.context(Proxyserver()) as context:
        context.options.update(mode=REVERSE)
        said, restore = connect_per_request(context.options)
        assert context.options.connection_strategy == "lazy"
        assert "connection_strategy lazy" in said
        restore()
        assert context.options.connection_strategy == "eager"


@pytest.mark.parametrize("chosen", ["eager", "lazy"])
def test_what_the_operator_chose_stays(chosen: str, caplog: pytest.LogCaptureFixture):
    with taddons.context(Proxyserver()) as context, caplog.at_level(logging.WARNING):
        context.options.update(mode=REVERSE, connection_strategy=chosen)
        said, restore = connect_per_request(context.options)
        assert context.options.connection_strategy == chosen
        assert said == ""
        restore()
        assert context.options.connection_strategy == chosen
    assert ("makes no row" in caplog.text) is (chosen == "eager")


def test_other_modes_are_left_alone():
    with taddons.context(Proxyserver()) as context:
        assert isinstance(context.options, options.Options)
        context.options.update(mode=["regular", *REVERSE])
        assert connect_per_request(context.options)[0] == ""
        assert context.options.connection_strategy == "eager"


def test_an_upstream_is_read_in_parts_of_64_kb():
    """A turn of the event loop takes what asyncio reads at once, which is 256 KB by itself."""
    flow = tflow.tflow(resp=True)

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            proxyserver = SimpleNamespace(name="proxyserver", connections={})
            addons = SimpleNamespace(get=lambda _: proxyserver)
            limit_reads(addons, flow)  # type: ignore[arg-type]  # a connection that is not known
            handler = SimpleNamespace(transports={flow.server_conn: SimpleNamespace(reader=reader)})
            proxyserver.connections[flow.client_conn.id] = handler
            limit_reads(addons, flow)  # type: ignore[arg-type]
            assert writer.transport.max_size == READ_BYTES_MAX  # type: ignore[attr-defined]
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())
