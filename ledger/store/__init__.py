"""Store: tables, engines, migrations at first use, and which rows are current.

In: a ledger URL; values of the model. Out: engines, statements, rows. The writer thread and its
batches stand in `writing`.
Uses: pricing, model.
"""
