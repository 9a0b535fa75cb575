"""Writing: threads hand exchanges to the writer without waiting for the ledger.

In: exchanges that open and settle, readings, lessons. Out: committed rows and resolved receipts.

    writer         the thread
    incoming       the queue, its jobs and receipts, and how long the writer gathers a batch
    batches        jobs become priced rows; rows that are refused; the model that was meant
    batch_insert   rows become one SQLite statement
    ledger_file    the file, and the check that it is still the ledger's
    unwritten      what cannot be written: tried again, set aside, or kept for the next start
    lessons        lessons about upstreams, learnt from traffic
Uses: model, store, store.engines, store.processes, store.schema, text.
"""
