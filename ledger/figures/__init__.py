"""Figures: sums over the requests of a scope, queried from a ledger.

    queries      figures by model, key, day, ...
    sum_query    sums of a period, from stored sums where there are some
    figures      the values, and percentiles of histograms
    activity     running requests, and today's cost
    limits       limits as answers stated them
    plans        what flat plans covered, by month and by block of five hours

In: a ledger, a scope, the words to group by. Out: figures as values.
Uses: model, pricing, settings, store, store.engines, store.processes, store.schema, text.
"""
