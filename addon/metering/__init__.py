"""Metering: one exchange from its request to its reading.

In: request and response values, the bytes of the answer in any chunks, WebSocket messages. Out:
the settled exchange and its reading. Sans-IO: the clock is an argument. The tap is here and not
in `proxy`, because replay and rebuild feed recorded bytes through the same one.
Uses: usage_opt_in, dialects, framing, the ledger's model.
"""
