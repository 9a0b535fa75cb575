"""Reports: figures and single requests as tables, text and files.

    report_tables, activity_text, price_tables, explain, name_suggestions
                     figures, prices, a request -> tables
    layout, render   a table -> text, CSV, JSON, Markdown
    lookup           one request with all that the ledger holds of it
    export, day_files, focus
                     Parquet, CSV and FOCUS files
    progress         the progress bar

In: a ledger, figures. Out: tables, text, files.
Uses: figures, maintenance, sync, store, settings, text, pricing, model.
"""
