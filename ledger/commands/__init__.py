"""Commands about the ledger, one file each, and what they share.

    options, scope, output   options, what they select, printing
    money/                   commands about prices, statements and limits

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: every other room of the ledger.
"""
