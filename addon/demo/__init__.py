"""Demo: `tokentee demo`. An agent, its team and the bill, on this machine alone.

    scenes    what the agent sends, what the providers answer, and what the ledger must have
    traffic   fake providers on loopback, a real mitmdump in front of them, and the agent
    story     plays the scenes, compares the ledger with what was sent, and shows it

In: nothing. Out: a report on stdout, and whether every figure was right.
Uses: run; of the ledger: figures, model, reports, store, text.
"""
