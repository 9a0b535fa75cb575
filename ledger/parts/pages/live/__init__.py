"""Live: the pages of a ledger in a browser, answered part by part.

    server   the routes, and the server that answers them
    guard    access control
    asked    the address -> period and filters
    reading  a read-only connection to a ledger

In: HTTP requests. Out: HTML and JSON. Nothing here writes to a ledger.
Uses: figures, model, parts.pages, reports, settings, store, store.engines, store.schema, text.
"""
