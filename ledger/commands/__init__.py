"""Commands about the ledger, one file each: options in, exit code out.

Uses: every other room of the ledger.
"""
