"""Sync: bundles of exchanges from one ledger into another, the spool, the shipper.

Uses: store, pricing, model.
"""
