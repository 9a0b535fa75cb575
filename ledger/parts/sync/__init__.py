"""Sync: bundles of exchanges from one ledger into another, the spool, the shipper.

In: a ledger, or a spool. Out: the same exchanges in another ledger, each once.
Uses: commands, maintenance, model, pricing, reports, settings, store, store.engines,
store.processes, store.schema, store.writing, text.
"""
