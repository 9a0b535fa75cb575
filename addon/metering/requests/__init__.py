"""Requests: who sent a request, and what of it may be stored.

    messages     a request and a response as values, whatever they came from
    attribution  key fingerprint, tags, session
    agents       which agent sent it, and its session
    path_keys    credentials in paths, replaced
    redaction    credentials and prompts in error texts, removed

In: headers, path and body of a request; texts that may repeat them. Out: what the ledger may hold.
Sans-IO.
Uses: dialects (for bounded text), the ledger's model.
"""
