"""The addon: mitmproxy and the wire. It imports `ledger`, never the reverse.

Sans-IO, bytes and values in and values out:
    framing/    bytes -> frames with exact spans
    dialects/   what a frame says about id, model, usage, end, error
    decoding    content-encodings, incrementally and bounded
    meter       decoding + framing + dialect -> facts
    ordinary    what a stream repeats, so that it need not be parsed
    passed_text, estimate       tokens that no provider reported
    session     the responses of a WebSocket, told apart
    rewrite     asks for usage in a request, takes it out of an answer
    exchange    one exchange's states: open -> streaming -> settled
Edge:
    tee         the script given to `mitmdump -s`
    options     mitmproxy options -> Settings
    recorder    mitmproxy's hooks
    tap         the callable on `flow.response.stream`
    capture, replay, cli
"""
