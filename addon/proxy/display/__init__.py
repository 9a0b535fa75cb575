"""Display: what people and monitors are shown of an exchange while the proxy runs.

    exchange_log  its log line
    flow_comment  its comment and page, as text
    content_view  both in mitmweb and mitmproxy
    watching      its metrics and spans

In: settled exchanges with their readings and charges; answers, for the content view. Out: log
lines, comments, views, observations for the telemetry.
Uses: dialects, metering, recordings, telemetry; of the ledger: model, pricing, settings,
store.writing, sync, text.
"""
