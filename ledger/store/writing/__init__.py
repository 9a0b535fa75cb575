"""Writing: from any thread into the ledger, without waiting.

In: exchanges that open and settle, readings, lessons. Out: committed rows and resolved receipts.

    writer         the thread, and what it is built of
    incoming       the queue, and how long a batch gathers
    jobs           what is queued; receipts and their results
    batches        jobs become priced rows; rows that are refused
    batch_insert   rows become one SQLite statement
    trouble        what is retried, set aside, dropped and logged
    ledger_file    the file, and watching that it stays
    lessons        what traffic has taught

Uses: store, its schema, engines and processes; pricing, model.
"""
