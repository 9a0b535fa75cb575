"""Live: the pages of a ledger in a browser, answered part by part.

    server   the routes, and the server that answers them
    guard    who may ask
    asked    the address -> period and filters
    reading  a ledger that cannot be written to

In: HTTP requests. Out: HTML and JSON. Nothing here writes to a ledger.
Uses: pages and what they use.
"""
