"""Exports: the ledger as files, one a day, for other programs.

    export         the data sets: requests, charges, FOCUS billing rows
    focus          a charge -> a FOCUS row
    events         requests as CloudEvents, and differences from what was told before
    audr           a request -> an AUDR record, instead of an event
    day_files      rows -> a complete file for each day, Parquet or CSV
    command        `tokentee export`

In: a ledger, which data set, which format. Out: files.
Uses: commands, figures, model, pricing, settings, store, store.schema, text.
"""
