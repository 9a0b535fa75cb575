"""Engines: the parts that `store.db` needs to open a ledger.

In: the URL of a ledger. Out: its parsed URL, its private file, its migrated schema, and a driver's
errors as one line for the operator.
Uses: model, settings, store, store.processes, store.schema, text.
"""
