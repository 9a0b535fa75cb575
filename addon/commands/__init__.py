"""Commands that need the wire, one file each.

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: every other room of the addon, the ledger.
"""
