"""Processes: which recording processes live, the open rows of dead ones, and supervised threads.

In: a ledger's file; the work of a thread. Out: rows marked as lost, items set aside, and the state
of each thread (`health`).
Uses: model, store, store.engines.
"""
