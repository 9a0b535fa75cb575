"""Fetched: wire formats of results that are fetched after the request that ordered them.

A result may be fetched many times and before it is there. An answer without usage makes no row,
and the same result fetched again is the same billed response: it has the same id and figures.

In: one parsed frame. Out: facts and usage.
Uses: dialects, and the formats that the answers inside have; the ledger's model.
"""
