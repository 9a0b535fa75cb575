"""Display: what people and monitors are shown of an exchange while the proxy runs.

    exchange_log  its log line
    flow_comment  its comment in mitmweb and mitmproxy

In: settled exchanges with their readings and charges. Out: log lines, comments.
Uses: metering; of the ledger: model, settings, store.writing, text.
"""
