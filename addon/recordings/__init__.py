"""Recordings: captures, flow files, HAR and single bodies; reading, writing, serving them back.

In: files, or live exchanges. Out: recorded exchanges, capture files, an upstream that answers from
recordings.
Uses: dialects, framing, metering, recordings.formats, usage_opt_in; of the
ledger: maintenance, model, pricing, reports, settings, store.processes, store.writing, text.
"""
