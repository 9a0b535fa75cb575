"""What a request can cost at most.

In: the members of a request, prices, limits of models. Out: the amounts that a cap holds for it.
Uses: dialects, framing, metering, proxy; of the ledger: model, parts.budgets, pricing, settings,
store.writing.
"""
