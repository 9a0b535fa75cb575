"""Model: the ledger's values. Exchange, reading, charge, usage, money, duplicates, providers.

In and out: values. Pure: no clock, no database, no files.
Uses: nothing of ours.
"""
