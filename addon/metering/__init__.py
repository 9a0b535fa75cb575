"""Metering: one exchange from its request to its reading.

    messages    a request and a response as values, from any source
    attribution who sent a request, and its credentials, which no row may hold
    segments    the parts of a chat request
    opening     a request -> the exchange to meter
    exchange    one open exchange
    tap         every byte of a live answer passes through it
    answer_reader
                frames and meters what has passed, in steps
    decoding    decodes content-encodings in bounded pieces
    backlog     bytes that are read in several turns of the event loop
    meter       blocks of an answer and their dialect -> facts
    templates   skips parsing frames that match earlier ones
    estimate    token estimates for text without reported usage
    settlement  how an exchange ended, and its reading
    websocket   which messages of a WebSocket begin and end a response
    session     the exchanges of one WebSocket connection
    troubles    errors of our own code in one exchange
    memory_budget
                how many bytes all exchanges together may keep

In: request and response values, the bytes of the answer in any chunks, WebSocket messages. Out:
the settled exchange and its reading. Sans-IO: the clock is an argument. The tap is here and not
in `proxy`, because replay and rebuild feed recorded bytes through the same one.
Uses: dialects, framing, usage_opt_in; of the ledger: model.
"""
