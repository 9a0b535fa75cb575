"""Demo: `tokentee demo`. A shipped recording, served back, recorded again, and the bill.

    demo.jsonl  five calls of an agent, in the capture format
    story       serves and sends them with a real mitmdump between, compares the ledger, shows it

In: nothing. Out: a report on stdout, and whether every figure was right.
Uses: metering, recordings, recordings.formats, run; of the ledger: commands, figures, model,
reports, store, text.
"""
