"""Reports: figures and single requests as tables and text.

    report_tables, activity_text, explain, name_suggestions
                     figures, prices, a request -> tables
    layout, render   a table -> text, CSV, JSON, Markdown
    lookup           one request with all of its rows in the ledger
    progress         the progress bar

In: a ledger, figures. Out: tables, text.
Uses: figures, maintenance, model, pricing, settings, store, store.schema, text.
"""
