"""Commands about money, one file each: prices, reprice, reconcile, budget.

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: commands (for what all commands share), and every other room of the ledger.
"""
