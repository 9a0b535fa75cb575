"""Reconcile: vendors' statements, and the comparison of them with the ledger.

Uses: reports (the ledger's own figures), store, model.
"""
