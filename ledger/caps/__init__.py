"""Caps: limits that stop.

In: `[[cap]]` of the budgets file, what a request can cost at most, what it did cost. Out: whether
it may go upstream now, later, or not; and what of a cap each process of a ledger may use.
Uses: model, settings, store, store.engines, store.processes, text.
"""
