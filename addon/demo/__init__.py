"""`tokentee demo`: the whole product once, on this machine alone.

Pure:
    scene     the request, the answer and the expected row of one scene
              (`seeds.toml` has those of five gateways, as data)
Edge:
    traffic   five systems on loopback, a real mitmdump in front of them, clients as SDKs are
    show      the rows of the ledger: read, compared, shown
Wiring:
    story     runs everything in order, compares the ledger with the bytes that upstream sent; an
              agent, its team and the bill, on one screen: what the command shows by default

In: nothing. Out: a report on stdout, and whether every figure was right.
Uses: of the ledger: figures, model, reports, store.
"""
