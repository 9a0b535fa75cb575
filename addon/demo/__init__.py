"""`tokentee demo`: the whole product once, on this machine alone.

Pure:
    scene     the request, the answer and the expected row of one scene
              (`seeds.toml` has those of five gateways, as data)
Edge:
    upstream  the five systems on loopback
    proxy     a real mitmdump with the addon, in front of them
    client    sends a scene's request as the official SDK would
    show      the rows of the ledger: read, compared, shown
Wiring:
    play      runs everything in order; compares the ledger with the bytes that upstream sent
    story     an agent, its team and the bill, on one screen: what the command shows by default

In: nothing. Out: a report on stdout, and whether every figure was right.
Uses: of the ledger: figures, model, reports, store.
"""
