"""Recordings: captures, flow files, HAR and single bodies; reading, writing, serving them back.

In: files, or live exchanges. Out: recorded exchanges, capture files, an upstream that answers from
recordings. Uses: metering and what it uses, the ledger's model and store.
"""
