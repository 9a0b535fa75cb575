"""Writing: threads hand exchanges to the writer without waiting for the ledger.

In: exchanges that open and settle, readings, lessons. Out: committed rows and resolved receipts.

    writer         the thread
    incoming       the queue, and how long the writer gathers a batch
    jobs           queued jobs; receipts and their results, and waiting for them
    batches        jobs become priced rows; rows that are refused
    batch_insert   rows become one SQLite statement
    trouble        the policy for failed writes
    ledger_file    the file, and the check that it is still the ledger's
    unbooked       rows of an overwritten ledger, until the next start
    meant          the model that was meant, where none answered
    lessons        lessons about upstreams, learnt from traffic
Uses: model, store, store.engines, store.processes, store.schema, text.
"""
