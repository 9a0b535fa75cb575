"""Commands that need the wire, one file each.

In: options. Out: results on stdout, everything else on stderr, an exit code.
Uses: demo, metering, recordings, recordings.formats, run, run.call; of the ledger: commands,
figures, maintenance, model, pricing, reports, settings, store.engines, store.writing, text.
"""
