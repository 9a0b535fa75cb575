"""Figures: what the requests of a scope add up to, asked of a ledger.

    queries      figures by model, key, day, ...
    sums         what a period adds up to
    spans        which parts of a period are summed up already
    figures      the values
    percentiles  p50 and p95 of times that are kept as texts
    activity     what is running now

In: a ledger, a scope, the words to group by. Out: figures as values.
Uses: maintenance, sync, store, settings, text, model.
"""
