"""Engines: what opening a ledger needs. `store.db` opens it.

In: the URL of a ledger. Out: its parsed URL, its private file, its schema brought up to date, and
a driver's errors as one line for the operator.
Uses: store's tables and schema, model.
"""
