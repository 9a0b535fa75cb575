"""Dialects: what a frame says, one file per wire format, and the routes to them.

In: a request's method, host, path and body; one JSON value per frame. Out: facts about the
exchange and its usage in the ledger's convention. Sans-IO. Wire formats stand in `openai`,
`google` and `vendors`, because there are more of them than fit one room.
Uses: framing (JSON values), the ledger's model.
"""
