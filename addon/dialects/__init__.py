"""Dialects: read facts from frames, one file per wire format, and the routes to them.

In: a request's method, host, path and body; one JSON value per frame. Out: facts about the
exchange and its usage in the ledger's convention. Sans-IO. There are too many wire formats for one
room, so they have their own: `openai`, `vendors`, `clouds`, `local`, and `fetched` for results that
clients fetch later.
Uses: dialects.clouds, dialects.fetched, dialects.local, dialects.openai, dialects.vendors, framing;
of the ledger: model.
"""
