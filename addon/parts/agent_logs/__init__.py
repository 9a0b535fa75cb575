"""Agent logs: the session logs that coding agents keep on disk (`agents.toml` names them).

In: log files. Out: one call for each answer of a model, with session, project, branch and usage;
exchanges of source `import`, booked once, corrected when a log has more of an answer, and not if
they were recorded live; or a comparison with what was recorded. Prompts and answers are skipped and
never kept.
Uses: dialects, dialects.openai, dialects.vendors, framing; of the ledger: commands, figures,
maintenance, model, pricing, reports, settings, store, store.engines, store.writing, text.
"""
