"""Plans: limits as answers stated them, what flat plans covered, and what a percent of them buys.

    limits           how much is used, when it is full, who used it      database
    percent_value    what a percent of a window buys                     pure
    limit_values     the same, of the accounts of a ledger               database
    plans            what flat plans covered, by month                   database
    limits_text      all of it as tables and lines
    percent_picture, shown   what they add to pages, `top` and the status line
    command          `tokentee limits`

In: a ledger. Out: figures, tables, sections of a page.
Uses: commands, figures, model, reports, settings, store, text.
"""
