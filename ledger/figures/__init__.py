"""Figures: sums over the requests of a scope, queried from a ledger.

    queries      figures by model, key, day, ...
    sum_query    sums of a period, from stored sums where there are some
    figures      the values, and percentiles of histograms
    activity     running requests, and today's cost
    blocks       requests by blocks of five hours, in which plans count use

In: a ledger, a scope, the words to group by. Out: figures as values.
Uses: maintenance, model, settings, store, store.engines, store.processes, store.schema, text.
"""
