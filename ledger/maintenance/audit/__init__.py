"""Audit: whether the rows of a ledger keep its promises.

    promises         the promises, each with its query
    restated         the ledger's rules, written a second time for these queries
    checking         asks each query of a ledger
    reading_digests  whether readings are what was written

In: a ledger. Out: how many rows break each promise, and the first of them.
Uses: pricing, store, store.schema, store.writing, sync.
"""
