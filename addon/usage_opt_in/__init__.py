"""Usage opt-in: asking for usage in a request, and taking it out of the answer again.

In: a request body, the bytes of an answer, what is known about an upstream. Out: the edited body,
the edited bytes, and whether to ask. Sans-IO.
Uses: dialects, framing, the ledger's model.
"""
