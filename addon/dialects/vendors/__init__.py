"""Vendors: the wire formats of single vendors, one file each; Google has three.

In: one parsed frame. Out: facts and usage.
Uses: dialects, framing, the ledger's model; the OpenAI formats, if a vendor's format is a variant
of one.
"""
