"""Processes: which recording processes live, what dead ones left, and threads that go on.

In: a ledger's file; the work of a thread. Out: rows given up as lost, items set aside, and how each
thread does (`health`).
Uses: store's tables and engines, model.
"""
