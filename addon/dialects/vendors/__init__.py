"""Vendors: the wire formats of single vendors, one file each; Google has three.

In: one parsed frame. Out: facts and usage.
Uses: dialects, dialects.openai, framing; of the ledger: model.
"""
