"""Dialects: read facts from frames, one file per wire format, and the routes to them.

In: a request's method, host, path and body; one JSON value per frame. Out: facts about the
exchange and its usage in the ledger's convention. Sans-IO. There are too many wire formats for one
room, so most have their own: `openai`, `vendors` and `clouds`.
Uses: dialects.clouds, dialects.openai, dialects.vendors, framing; of the ledger: model.
"""
