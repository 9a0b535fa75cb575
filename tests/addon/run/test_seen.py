"""The bill of `mitmdump -s`: from a hook of mitmproxy that must raise nowhere."""

from mitmproxy.test import taddons

from addon.proxy.recorder import Recorder
from addon.run.seen import ScriptBill


def test_a_master_without_a_terminal_log_ends_without_a_bill(capfd):
    bill = ScriptBill(Recorder())
    with taddons.context(bill) as context:
        assert "termlog_verbosity" not in context.options
        bill.done()
    assert capfd.readouterr().err == ""
