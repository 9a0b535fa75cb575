"""Proxy: mitmproxy's side. Hooks, options, waiting for commits, stopping.

    recorder    mitmproxy's hooks of the script: start, requests, stop
    traffic     mitmproxy's hooks of exchanges under way
    recording   begins and settles the exchange of a flow; its settings and its ledger
    live        one exchange under way, and its capture
    sessions    one open WebSocket
    authorising who is asked before a request goes upstream
    answers     puts the tap into an answer's stream
    opt_in      asks upstreams for usage, and learns where that is needed
    event_loop  guards, turns, waiting for the writer
    lifecycle   start, reload, removal, stop: the states of a recording
    options     mitmproxy's options -> settings
    process     whose process it is, and what is changed of mitmproxy in it
    health      whether this process is recording
    shown       the log line of an exchange, its comment, what to type next
    wrapped     what mitmproxy has no hook for
    sources     which functions of mitmproxy ours were written for

In: mitmproxy's flows and options. Out: calls to the meter and to the ledger.
Uses: dialects, framing, metering, recordings, recordings.formats, usage_opt_in; of the ledger:
model, pricing, settings, store.engines, store.writing, text.
"""
