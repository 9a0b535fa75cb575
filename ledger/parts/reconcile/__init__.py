"""Reconcile: compares vendors' statements with the ledger.

In: exports of vendors, one file of code for each vendor in `vendors`. Out: each figure of each day
and model on both sides, and whether they agree.
Uses: commands, figures, model, pricing, reports, settings, store, store.schema, text.
"""
