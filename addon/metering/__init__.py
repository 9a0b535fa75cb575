"""Metering: one exchange from its request to its reading.

    opening     a request -> the exchange to meter
    exchange    one open exchange
    tap         every byte of a live answer passes through it
    digests     lengths and digests of the bytes that passed
    settlement  how an exchange ended, and its reading
    session, websocket
                the exchanges of one WebSocket connection
    troubles    errors of our own code in one exchange
    memory_budget
                how many bytes all exchanges together may keep
    requests/   who sent a request, and which of its texts may be stored
    answers/    the bytes of one answer -> facts

In: request and response values, the bytes of the answer in any chunks, WebSocket messages. Out:
the settled exchange and its reading. Sans-IO: the clock is an argument. The tap is here and not
in `proxy`, because replay and rebuild feed recorded bytes through the same one.
Uses: dialects, framing, metering.answers, metering.requests, usage_opt_in; of the ledger: model.
"""
