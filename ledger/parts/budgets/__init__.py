"""Caps and budgets: limits that stop, and limits that only warn.

In: the budgets file, what a request can cost at most, what it did cost. Out: whether it may go
upstream now, later, or not; how far each limit is used, its forecast, and one alert for each
threshold and period.
Uses: commands, figures, model, pricing, reports, settings, store, store.engines, store.processes,
text.
"""
