"""The addon: mitmproxy and the wire. It imports `ledger`, never the reverse.

    framing        bytes -> frames with exact spans                                  sans-IO
    dialects       what a frame says about id, model, usage, end, error              sans-IO
    usage_opt_in   asking for usage in a request, taking it out of the answer        sans-IO
    metering       one exchange: decode, frame, read, estimate, settle               sans-IO
    recordings     captures, flow files, HAR, bodies: reading, writing, serving
    proxy          mitmproxy's side: hooks, options, waiting for commits, stopping
    run            `tokentee run`
    demo           `tokentee demo`
    commands       one file per command that needs the wire
    parts          what a user can do without: a folder and a row each; nothing else imports them

`tee.py` is the script for `mitmdump -s`, `cli.py` the `tokentee` command.

In: HTTP traffic that passes mitmproxy, or recordings of it. Out: exchanges in a ledger.
Uses: the ledger. A room uses only rooms above it in this list; `tests/test_rooms.py` holds the
table of arrows.
"""
