"""Metering: one exchange from its request to its reading.

    opening     a request -> the exchange that is to be metered
    exchange    one exchange under way
    tap         every byte of a live answer passes here
    whole       an answer that a recording holds as a whole
    settlement  how an exchange ended, and what was read from it
    session, websocket, live_turns
                the exchanges of one WebSocket connection
    troubles    what went wrong on our side in one exchange
    budget      how many bytes all exchanges together may keep
    requests/   who sent a request, and what of it may be stored
    answers/    the bytes of one answer -> facts

In: request and response values, the bytes of the answer in any chunks, WebSocket messages. Out:
the settled exchange and its reading. Sans-IO: the clock is an argument. The tap is here and not
in `proxy`, because replay and rebuild feed recorded bytes through the same one.
Uses: usage_opt_in, dialects, framing, the ledger's model.
"""
