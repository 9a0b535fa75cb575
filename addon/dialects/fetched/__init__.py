"""Fetched: wire formats of results that clients fetch after the request that ordered them.

A client may fetch a result many times and before it is ready. An answer without usage makes no row.
The same result fetched again has the same id and figures, so it is the same billed response.

In: one parsed frame. Out: facts and usage.
Uses: dialects, dialects.openai, dialects.vendors; of the ledger: model.
"""
