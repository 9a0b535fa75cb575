"""Clouds: wire formats of platforms that serve models of several vendors.

In: one parsed frame. Out: facts and usage.
Uses: dialects, dialects.openai; of the ledger: model.
"""
