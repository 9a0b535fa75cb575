"""OpenAI: its wire formats, and those of everyone who writes them in another spelling.

In: one parsed frame. Out: facts and usage.
Uses: dialects, the ledger's model.
"""
