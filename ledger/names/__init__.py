"""Names: who is behind a key, a host, a tag, a session or a project.

In: one small TOML file. Out: the person, team and cost centre of a request, at its own time.
The ledger is not changed: history is named when it is asked for.
Uses: model.
"""
