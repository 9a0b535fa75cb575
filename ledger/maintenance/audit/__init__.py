"""Audit: whether the rows of a ledger keep its promises.

    promises   the promises, each with its query
    checking   asks each query of a ledger, and whether readings are what was written

In: a ledger. Out: how many rows break each promise, and the first of them.
Uses: pricing, store, store.schema, store.writing, sync.
"""
