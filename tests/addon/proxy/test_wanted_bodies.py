"""What options and other addons decide: which plain answers are buffered, and when a connection to
upstream is made."""

import logging
import types

import pytest
from mitmproxy import options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.savehar import SaveHar
from mitmproxy.test import taddons

from addon.proxy import wanted_bodies as bodies
from addon.proxy.connections import connect_per_request
from addon.proxy.recorder import Recorder


class Foreign:
    def response(self, flow) -> None: ...


class WithoutHook:
    def request(self, flow) -> None: ...


def script(**members: object) -> types.ModuleType:
    module = types.ModuleType("__mitmproxy_script__.mine")
    module.__dict__.update(members)
    return module


@pytest.mark.parametrize(
    ("addon", "is_foreign"),
    [
        pytest.param(Foreign(), True, id="class"),
        pytest.param(WithoutHook(), False, id="without-response"),
        pytest.param(Recorder(), False, id="ours"),
        pytest.param(SaveHar(), False, id="mitmproxys"),
        pytest.param(script(response=lambda flow: None), True, id="script-with-a-function"),
        pytest.param(script(addons=[Recorder()]), False, id="our-script"),
        pytest.param(script(addons=[Recorder(), Foreign()]), True, id="script-with-a-class"),
    ],
)
def test_whose_response_hook_is_foreign(addon: object, is_foreign: bool):
    assert bodies.has_foreign_hook([WithoutHook(), addon]) is is_foreign


def test_nobody_wants_bodies_by_default():
    with taddons.context(loadcore=False):
        assert not bodies.Bodies().are_wanted


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("save_stream_file", str, "flows.mitm"),
        ("hardump", str, "all.har"),
        ("flow_detail", int, 3),
        ("store_streamed_bodies", bool, True),
    ],
)
def test_options_that_need_bodies(name: str, kind: type, value: object):
    with taddons.context(loadcore=False) as context:
        if name not in context.options:
            context.options.add_option(name, kind, kind(), "")
        wanted = bodies.Bodies()
        assert not wanted.are_wanted
        context.options.update(**{name: value})
        wanted.forget()
        assert wanted.are_wanted


def test_addons_are_looked_up_again_after_a_change():
    with taddons.context(loadcore=False) as context:
        found = bodies.Bodies()
        assert not found.are_wanted
        context.master.addons.add(Foreign())
        assert not found.are_wanted
        found.forget()
        assert found.are_wanted


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
