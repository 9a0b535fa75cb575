"""Requests: who sent a request, and which of its texts may be stored.

    messages     a request and a response as values, from any source
    attribution  key fingerprint, tags, session
    agents       which agent sent it, and its session
    path_keys    redacts credentials in paths
    redaction    redacts credentials and prompts in error texts

In: headers, path and body of a request; texts that may repeat them. Out: texts safe for the ledger.
Sans-IO.
Uses: dialects; of the ledger: model.
"""
