"""Proxy: mitmproxy's side. Hooks, options, waiting for commits, stopping.

    recorder    mitmproxy's hooks
    exchanges   begins and settles the exchange of a flow
    running     what the recorder knows of exchanges under way
    answers     puts the tap into an answer's stream
    stream_events  answers the patches on mitmproxy's streams
    opt_in      asks upstreams for usage
    websockets  messages of WebSocket flows
    capturing   what passes, for captures
    held_end    the last chunk of a body, held until the reading is committed
    commits     waits for the writer
    lifecycle   start, reload, stop
    options     mitmproxy's options -> settings
    host/       mitmproxy's own objects, and settings of its process
    display/    what people and monitors are shown of an exchange
    patches/    what mitmproxy has no hook for

In: mitmproxy's flows and options. Out: calls to the meter and to the ledger.
Uses: recordings (to write captures), telemetry, metering and what it uses, the ledger.
"""
