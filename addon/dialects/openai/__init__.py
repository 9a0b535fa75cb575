"""OpenAI: its wire formats, and the variants of compatible providers.

In: one parsed frame. Out: facts and usage.
Uses: dialects; of the ledger: model.
"""
