"""Telemetry: health, metrics, spans and JSON logs for operators; all of it off by default.

In: settled exchanges that the ledger has committed, with their charges; the ledger's health. Out:
`/healthz`, `/readyz` and `/metrics` over HTTP, OpenTelemetry spans and metrics over OTLP, JSON log
lines. Nothing here runs on the event loop or on the byte path, and nothing here can delay a commit:
a full queue drops the observation and counts it. Several workers count in shared files, and their
supervisor serves the sum.
Uses: proxy, recordings; of the ledger: model, settings, store, store.processes, store.writing,
text.
"""
