"""Clouds: wire formats of platforms that serve models of several makers, each in its own words.

In: one parsed frame. Out: facts and usage.
Uses: dialects, the OpenAI formats, the ledger's model.
"""
