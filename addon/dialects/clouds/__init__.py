"""Clouds: wire formats of platforms that serve models of several vendors.

In: one parsed frame. Out: facts and usage.
Uses: dialects, the OpenAI formats, the ledger's model.
"""
