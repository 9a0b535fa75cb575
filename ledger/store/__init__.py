"""Store: tables, opening a ledger, and the scope of a query.

In: a ledger URL; values of the model. Out: engines, statements, rows.

    engines     URLs, private files, the schema and its migrations
    schema      columns, and the views, guards and links derived from the tables
    writing     the writer thread and its batches
    processes   which recording processes and threads work, and the open rows of dead ones
Uses: model, settings, store.engines, store.schema, text.
"""
