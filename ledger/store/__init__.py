"""Store: tables, opening a ledger, and what a question to it is about.

In: a ledger URL; values of the model. Out: engines, statements, rows.

    engines     URLs, private files, the schema and its migrations
    schema      columns, and what the database derives from its tables
    writing     the writer thread and its batches
    processes   which recording processes and threads work, and what dead ones left

Uses: pricing, settings, text, model.
"""
