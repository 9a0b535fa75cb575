"""Requests: who sent a request, and its credentials, which no row may hold.

    messages     a request and a response as values, from any source
    attribution  key fingerprint, tags, session; redacts credentials in paths

In: headers, path and body of a request. Out: what the ledger keeps of them.
Sans-IO.
Uses: dialects.
"""
