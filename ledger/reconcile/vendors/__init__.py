"""Vendors: their exports, one file each. Adding a vendor is one file and its row in `reading`.

In: one row or object of an export. Out: a line of a statement.
Uses: model, reconcile.
"""
