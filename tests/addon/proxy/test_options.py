"""Every option is text and is checked at the door; what is wrong is named with its value. What options and other
addons decide: which plain answers are buffered, and when a connection to upstream is made."""

import logging
import types
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from mitmproxy import options
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.savehar import SaveHar
from mitmproxy.test import taddons
from msgspec import structs

from addon.metering.attribution import TAGS_MAX
from addon.metering.opening import Upstream
from addon.proxy import process as bodies
from addon.proxy.options import Inject, Log, parse, unknown_options
from addon.proxy.process import connect_per_request
from addon.proxy.recorder import Recorder
from tests.addon.metering.opened import REQUEST
from tests.named import for_each


@dataclass
class Values:
    ledger_url: str | None = "sqlite:////tmp/ledger.db"
    ledger_commit: str | None = None
    tee_inject: str | None = None
    tee_hosts: str | None = None
    tee_capture: str | None = None
    tee_tags: str | None = None
    tee_client_tags: str | None = None
    tee_error_text: str | None = None
    tee_segments: str | None = None
    tee_log: str | None = None
    tee_log_format: str | None = None
    tee_prices: str | None = None
    tee_metrics: str | None = None
    tee_otlp: str | None = None
    tee_fast: str | None = None
    tee_wrap: str | None = None


def test_what_is_not_said_is_the_default() -> None:
    settings = parse(Values())
    assert settings.ledger_url == "sqlite:////tmp/ledger.db"
    assert settings.commit_before_end is True
    assert settings.inject is Inject.AUTO
    assert settings.rules.upstreams == ()
    assert settings.capture is None
    assert settings.rules.tags == {}
    assert settings.rules.takes_client_tags is True
    assert settings.log is Log.OFF
    assert settings.prices is None
    of_parts = {"tee_metrics": None, "tee_otlp": None, "tee_log_format": False, "tee_fast": None}
    assert settings.of_parts == of_parts


def test_without_a_url_the_ledger_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKENTEE_LEDGER", "sqlite:////tmp/from-the-environment.db")
    assert parse(Values(ledger_url=None)).ledger_url == "sqlite:////tmp/from-the-environment.db"


def test_all_that_can_be_said(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("")
    settings = parse(
        Values(
            ledger_commit="async",
            tee_inject="never",
            tee_hosts="LLM.example, 127.0.0.1:8001=aivene, gateway.example=my-gateway",
            tee_capture=str(tmp_path / "captures"),
            tee_tags="team=search, env=prod",
            tee_client_tags="ignore",
            tee_log="exchanges",
            tee_prices=str(prices),
        )
    )
    assert settings.commit_before_end is False
    assert settings.inject is Inject.NEVER
    assert settings.rules.upstreams == (
        Upstream(host="llm.example"),
        Upstream(host="127.0.0.1", port=8001, provider="aivene"),
        Upstream(host="gateway.example", provider="my-gateway"),
    )
    assert settings.capture == tmp_path / "captures"
    assert settings.rules.tags == {"team": "search", "env": "prod"}
    assert settings.rules.takes_client_tags is False
    assert settings.log is Log.EXCHANGES
    assert settings.prices == prices


@for_each(
    "host, port, provider",
    [
        pytest.param("127.0.0.1", 8001, "aivene", id="host-and-port"),
        pytest.param("127.0.0.1", 8002, None, id="another-port"),
        pytest.param("gateway.example", 443, "own", id="any-port"),
        pytest.param("Gateway.Example.", 443, "own", id="another-spelling"),
        pytest.param("::1", 8003, "six", id="ipv6"),
        pytest.param("::1", 8004, None, id="ipv6-another-port"),
        pytest.param("absolute.example", 443, "dot", id="absolute-name"),
        pytest.param("other.example", 443, None, id="another-host"),
    ],
)
def test_an_upstream_is_found_by_host_and_port(host: str, port: int, provider: str | None) -> None:
    hosts = "127.0.0.1:8001=aivene,gateway.example=own,[::1]:8003=six,absolute.example.=dot"
    settings = parse(Values(tee_hosts=hosts))
    request = structs.replace(REQUEST, host=host, port=port)
    found = settings.rules.upstream_of(request)
    assert (found.provider if found else None) == provider


@for_each(
    "option, value",
    [
        ("ledger_commit", "sometimes"),
        ("ledger_commit", ""),
        ("tee_inject", "AUTO"),
        ("tee_hosts", "host:port"),
        ("tee_hosts", "host:0"),
        ("tee_hosts", "[::1]8000"),
        ("tee_hosts", "::1"),
        ("tee_hosts", "host:65536"),
        ("tee_hosts", "host:٣"),
        ("tee_hosts", "http://host"),
        ("tee_hosts", "=provider"),
        ("tee_hosts", "host="),
        ("tee_tags", "team"),
        ("tee_tags", "=x"),
        ("tee_tags", ",".join(f"k{n}=v" for n in range(TAGS_MAX + 1))),
        ("tee_client_tags", "no"),
        ("tee_log", "all"),
        ("ledger_url", "mysql://somewhere/x"),
        ("ledger_url", "postgresql+psycopg://u:p@[bad"),
        ("ledger_url", "nonsense://"),
        ("tee_capture", "/proc/nope/x"),
        ("tee_prices", "/no/such/file.toml"),
        ("tee_prices", "/tmp"),
        ("tee_prices", f"/tmp/{'x' * 300}"),
        ("tee_capture", f"/tmp/{'x' * 300}"),
    ],
)
def test_a_bad_value_is_named(option: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}: "):
        parse(replace(Values(), **{option: value}))


def test_a_capture_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(ValueError, match=r"tee_capture: .*taken.* is not a directory"):
        parse(Values(tee_capture=str(taken)))


@for_each(
    "url",
    ["postgresql+psycopg://u:s3cret@[bad", "mysql://u:s3cret@h/x", "postgres//u:s3cret@h/x"],
)
def test_a_bad_url_does_not_repeat_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^ledger_url: ") as raised:
        parse(Values(ledger_url=url))
    assert "s3cret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_capture_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "captures"
    parse(Values(tee_capture=str(folder)))
    assert folder.stat().st_mode & 0o777 == 0o700


KNOWN = ["mode", "confdir", "connection_strategy"]


def test_an_unknown_option_is_named_with_the_nearest_right_one() -> None:
    assert unknown_options(["tee_host"], [], known=KNOWN) == [
        "unknown option 'tee_host': did you mean tee_hosts?"
    ]
    assert unknown_options(["confdri"], [], known=KNOWN) == [
        "unknown option 'confdri': did you mean confdir?"
    ]
    (line,) = unknown_options(["nosuch"], [], known=KNOWN)
    assert "'nosuch'" in line
    assert "mitmdump --options" in line


def test_a_file_may_hold_options_of_scripts_that_are_not_loaded() -> None:
    assert unknown_options([], ["other_addon"], known=KNOWN) == []
    assert len(unknown_options([], ["ledger_urls", "other_addon"], known=KNOWN)) == 1
    assert unknown_options([], [], known=KNOWN) == []


def test_an_option_of_a_part_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"tee_metrics": "addon.parts.telemetry"}
    monkeypatch.setattr("addon.proxy.options.options_of_parts", lambda: ({}, missing))
    (line,) = unknown_options(["tee_metrics"], [], known=KNOWN)
    assert line.endswith("belongs to a part that is missing here: addon.parts.telemetry")


class Foreign:
    def response(self, flow) -> None: ...


class WithoutHook:
    def request(self, flow) -> None: ...


def script(**members: object) -> types.ModuleType:
    module = types.ModuleType("__mitmproxy_script__.mine")
    module.__dict__.update(members)
    return module


@for_each(
    "addon, is_foreign",
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


@for_each(
    "name, kind, value",
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
    """Of addons, and of the children of one, as when another script is loaded again."""
    with taddons.context(loadcore=False) as context:
        found = bodies.Bodies()
        assert not found.are_wanted
        beside = Foreign()
        context.master.addons.add(beside)
        assert found.are_wanted
        context.master.addons.remove(beside)
        assert not found.are_wanted
        other = script(addons=[WithoutHook()])
        context.master.addons.add(other)
        assert not found.are_wanted
        other.addons = []
        context.master.addons.register(beside)
        other.addons = [beside]
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
    assert ("a request is not recorded" in caplog.text) is (chosen == "eager")


def test_other_modes_are_left_alone():
    with taddons.context(Proxyserver()) as context:
        assert isinstance(context.options, options.Options)
        context.options.update(mode=["regular", *REVERSE])
        assert connect_per_request(context.options)[0] == ""
        assert context.options.connection_strategy == "eager"
