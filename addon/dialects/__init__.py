"""Dialects: what a frame says, one file per wire format, and the routes to them.

In: a request's method, host, path and body; one JSON value per frame. Out: facts about the
exchange and its usage in the ledger's convention. Sans-IO. Wire formats stand in rooms of
their own, because there are more of them than fit one: `openai`, `vendors`, `clouds`, `local`, and
`fetched` for results that are fetched later.
Uses: framing (JSON values), the ledger's model.
"""
