"""What a proxy has seen, by mitmproxy's hooks, and the bill of `mitmdump -s`."""

import sys

import pytest
from mitmproxy.http import Response
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons, tflow

import addon.run
from addon.proxy.recorder import Recorder
from addon.run.seen import PLACES_MAX, ScriptBill, SeenTraffic
from ledger.text.first_minute import PassedTraffic, nothing_recorded


def test_a_master_without_a_terminal_log_ends_without_a_bill(capfd):
    bill = ScriptBill(Recorder())
    with taddons.context(bill) as context:
        assert "termlog_verbosity" not in context.options
        bill.done()
    assert capfd.readouterr().err == ""


def test_what_kept_a_request_from_passing_is_told_apart():
    traffic, flow = SeenTraffic(), tflow.tflow()
    server, client = flow.server_conn, flow.client_conn
    traffic.client_connected(client)
    traffic.http_connect(flow)
    traffic.request(flow)
    flow.response = Response.make(407)
    traffic.http_connect(flow)
    traffic.request(flow)
    server.error = "[Errno 111] Connection refused"
    traffic.server_connect_error(ServerConnectionHookData(server, client))
    host = "address:22"
    assert traffic.seen == PassedTraffic(
        connections=1,
        requests={host: 1},
        without_password={host: 2},
        unreachable={f"{host} (Connection refused)": 1},
    )


def test_http2_without_tls_is_named_at_once_with_its_cure(caplog):
    traffic, flow = SeenTraffic(), tflow.tflow()
    flow.request.method, flow.request.http_version = "PRI", "HTTP/2.0"
    flow.request.host, flow.request.port = "bedrock-runtime.us-east-1.amazonaws.com", 443
    traffic.request(flow)
    traffic.request(flow)
    (said,) = [each.message for each in caplog.records]
    cure = "`tokentee run` with the same --mode answers it"
    assert "to bedrock-runtime.us-east-1.amazonaws.com was refused" in said
    assert said.endswith(cure)
    assert not traffic.seen.requests
    assert cure in nothing_recorded(traffic.seen, is_command=False)[0]


def test_hosts_are_counted_within_the_bound():
    traffic, flow = SeenTraffic(), tflow.tflow()
    for port in range(PLACES_MAX + 5):
        flow.request.port = port
        traffic.request(flow)
    assert len(traffic.seen.requests) == PLACES_MAX


def test_a_version_that_was_replaced_while_it_ran_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "addon.run.bill", None)
    monkeypatch.delattr(addon.run, "bill", raising=False)
    SeenTraffic().show_bill("sqlite://", "r1", since=None, unrecorded="")
    assert "report --only tag:run=r1" in capsys.readouterr().err
