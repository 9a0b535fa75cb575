"""Reports: questions to the ledger, and their answers as tables, text and files.

Uses: maintenance, sync, store, pricing, model.
"""
