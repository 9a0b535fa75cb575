"""The ledger: tables, money and time. It knows no wire format and no mitmproxy.

    model         exchange, reading, charge, usage, money, duplicates, providers
    text          words that operators type, and text shown to them
    settings      the operator's files: reading and checking them; names of keys and teams
    pricing       price sources, price lines, overrides, charges
    store         tables, engines, migrations at first use, the writer, current readings
    maintenance   roll-ups, retention, corrections, repricing, audit
    figures       sums of requests
    reports       figures and requests as tables and text
    commands      one file per command
    parts         what a user can do without: a folder and a row each; nothing else imports them

In: exchanges, readings, files of operators and vendors. Out: figures, reports, exit codes.
Uses: nothing of the addon. A room uses only rooms above it in this list; `tests/test_rooms.py`
holds the table of arrows.
"""
