"""Commands about money, one file each: prices, reprice, reconcile, budget.

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: budgets, commands, figures, maintenance, model, pricing, reconcile, reports, settings, text.
"""
