"""Commands that need the wire, one file each: options in, exit code out.

Uses: every other room of the addon, the ledger.
"""
