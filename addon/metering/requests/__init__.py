"""Requests: who sent a request, and which of its texts may be stored.

    messages     a request and a response as values, from any source
    attribution  key fingerprint, tags, session; redacts credentials in paths
    purpose      which agent sent it, its session, and what for
    billing      by tokens, by a plan, or not at all
    redaction    redacts credentials and prompts in error texts

In: headers, path and body of a request; texts that may repeat them. Out: texts safe for the ledger.
Sans-IO.
Uses: dialects; of the ledger: model.
"""
