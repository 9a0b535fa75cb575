"""Agent logs: the session logs that Claude Code, Codex and Gemini CLI keep on disk.

In: log files. Out: one call for each answer of a model, with session, project, branch and usage;
exchanges of source `import`, booked once and not if they were recorded live. Prompts and answers
are skipped and never kept.
Uses: dialects, dialects.openai, dialects.vendors, framing, metering; of the ledger: maintenance,
model, store, store.writing.
"""
