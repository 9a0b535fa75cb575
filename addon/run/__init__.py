"""Run: `tokentee run`. The lean master, the child's environment, the summary.

In: a command line. Out: the command's exit code, and its bill on stderr.
Uses: proxy and what it uses, the ledger.
"""
