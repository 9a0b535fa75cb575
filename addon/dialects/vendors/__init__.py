"""Vendors: the wire formats of single vendors, one file each; Google has three.

In: one parsed frame. Out: facts and usage.
Uses: dialects, framing, the ledger's model; the OpenAI formats, where a vendor's format is one of
them with other words.
"""
