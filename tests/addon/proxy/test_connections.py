"""Connecting per request, unless the operator chose otherwise."""

import logging

import pytest
from mitmproxy import options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addon.proxy.connections import connect_per_request

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
