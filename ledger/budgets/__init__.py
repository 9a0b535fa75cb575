"""Budgets: limits of spending, how far they are used, and alerts.

In: a TOML file, the names file, the ledger. Out: spending and its forecast, and one alert for each
threshold and period. Advisory: a budget never stops or slows traffic.
Uses: caps, figures, model, reports, settings, store, store.processes, text.
"""
