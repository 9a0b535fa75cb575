"""Maintenance of stored rows: roll-ups, retention, corrections, repricing.

In: a ledger. Out: the same ledger with sums, further readings and charges, or fewer old rows; what
does not agree in it (`checking.py`: whether its rows keep the promises of `promises.py`).
Uses: model, pricing, store, store.engines, store.processes, store.schema, store.writing.
"""
