"""Maintenance of stored rows: roll-ups, retention, corrections, repricing, audit.

Uses: sync, store, pricing, model.
"""
