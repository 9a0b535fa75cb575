"""`tokentee demo`: the whole product once, on this machine alone.

Pure:
    scene     what one scene sends, gets, and must leave in the ledger
    chat      the systems that speak chat completions: Aivene, OpenToken, Sansa, `stream:chat:`
    chuizi    Chuizi AI, which speaks three protocols
Edge:
    upstream  the five systems on loopback
    proxy     a real mitmdump with the addon, in front of them
    client    sends a scene's request as the official SDK would
    rows      what the ledger says
    show      prints it
Wiring:
    play      all of it in order; checks itself against what upstream sent

In: nothing. Out: a report on stdout, and whether every figure was right.
Uses: `tee.py`, through a real mitmdump; the ledger.
"""
