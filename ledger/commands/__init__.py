"""Commands about the ledger, one file each, and their shared parts.

    options, output   options and the scope that they select; printing
    money/            commands about prices, statements and limits

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: budgets, exports, figures, maintenance, model, pages, pages.live, pricing, reconcile, reports,
settings, store, store.engines, store.schema, sync, text, why.
"""
