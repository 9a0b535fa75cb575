"""Display: what people and monitors are shown of an exchange while the proxy runs.

    exchange_log  its log line
    flow_comment  its comment in mitmweb and mitmproxy
    watching      its metrics and spans

In: settled exchanges with their readings and charges. Out: log lines, comments, observations for
the telemetry.
Uses: metering, recordings, telemetry; of the ledger: model, settings, store, store.writing, text.
"""
