"""Commands about the ledger, and their shared parts.

    options, output   options and the scope that they select; printing
    report            report
    requests          requests, show
    now               top, statusline, limits
    prices            prices, reprice
    db                db

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: figures, maintenance, model, pricing, reports, settings, store, store.engines, store.schema,
text.
"""
