"""Proxy: mitmproxy's side. Hooks, options, waiting for commits, stopping.

In: mitmproxy's flows and options. Out: calls to the meter and to the ledger.
Uses: recordings (to write captures), metering and what it uses, the ledger.
"""
