"""Usage opt-in: asks for usage in a request, and strips it from the answer.

In: a request body, the bytes of an answer, the lessons about an upstream. Out: the edited body, the
edited bytes, and whether to ask. Sans-IO.
Uses: framing; of the ledger: model.
"""
